// Package compare tells whether the service of run B answers better, worse or the same as that of run A, from two results
// directories of the same workload (A/B), or of the same service twice (A/A).
//
// Each metric gets the ratio of a quantile, B over A, with a confidence interval by the stationary block bootstrap over
// time; where both runs replayed the same rows, also a paired test. docs/compare.md has the methods, their sources, and how
// often they err.
package compare
