// Package deploy holds the tests of what takes the extension to where teams run it: the manifests for k6-operator, the
// Grafana dashboards, the recipes for CI, and the rehearsals of them on one machine. It has no code of its own.
package deploy
