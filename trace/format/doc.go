// Package format reads and writes trace files: who asked for how many tokens, and when.
//
// It knows the public forms (Mooncake and vLLM timed_trace JSONL, AIPerf's superset of it, Qwen-Bailian
// JSONL, Azure and BurstGPT CSV), generic JSONL and CSV through a field map, each plain or gzipped, and
// this project's own JSONL. A form is detected from the content, never from the file's name. Everything
// that a reader decides (form, unit of time, block size) is kept in the Trace beside the reason for it,
// and everything odd that it meets (unsorted rows, rows without output, bad lines) is counted in Notes.
//
// Rows are kept flat: one Row is 64 bytes, its block ids 8 bytes each in arenas that many rows share,
// its class and session interned. A million Mooncake rows of 24 blocks each take about 263 MB, a
// million CSV rows 67 MB (BenchmarkRead measures both, with the slack of the slices). A Trace is read-only once read: it may
// be shared by any number of goroutines, and the functions in transform.go return a new Trace.
//
// The package is plain Go and knows nothing of k6.
package format
