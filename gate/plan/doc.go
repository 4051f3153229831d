// Package plan turns a Safe QPS and a demand into replicas and money: by Safe QPS and, as a check, by Little's law, with
// headroom, growth and a spare for the failure of one. docs/plan.md has the formulas.
package plan
