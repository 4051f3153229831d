// Package e2e holds the end-to-end tests: they run the built k6 binary against the simulated engine over a real socket.
package e2e
