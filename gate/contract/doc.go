// Package contract reads the SLO contract of a capacity test: a YAML file that states, before the test
// runs, which limits the service must keep, when the test is to be stopped, and how sure the answer has to
// be. The package parses and checks the file, resolves limits that refer to a baseline, translates every
// line that k6 can judge into k6 thresholds, and explains all of it.
//
// Times are milliseconds, rates are shares between 0 and 1, throughputs are per second, wherever a number
// leaves this package. The reference for every key is docs/contract.md; docs/contract.schema.json is the
// JSON Schema for editors.
//
// The package knows k6's threshold grammar but does not import k6: thresholds leave it as strings.
package contract
