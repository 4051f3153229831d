// Package workload decides what each request of a trace asks for: its prompt, to the token, and its answer's length.
//
// Generate makes a trace from an arrival process, a Mix of classes with length distributions, and a Prefix model of
// shared beginnings. NewPlan turns a trace, generated or recorded, into requests: Plan.At gives the request of a row.
//
// Everything is a pure function of a seed and a row number, computed from counters and not from a generator that is
// carried along: any instance of a distributed run, and any virtual user, computes any row by itself and gets the
// same bytes. Prompts never share a beginning by accident, since a server's prefix cache would turn that into
// speed that production does not have:
//
//   - rows with hash ids are made of blocks of text, one for each id: equal ids, equal text;
//   - all other rows get a prompt of their own, different from every other row's in the first two words at the latest
//     (among any million rows) and in the first one already among any thousand;
//   - prompts from a Pool are taken in a seeded permutation, each once before any is taken again.
//
// Lengths are drawn by inverting distribution functions in floating point and rounded to whole tokens. Processors
// that fuse multiplication and addition may differ in the last bit of a float: that could change a length by one
// token only where a value falls within one part in 10¹⁵ of a half.
package workload
