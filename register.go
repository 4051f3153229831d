// Package safeqps registers every part of the extension with k6. It is the one file that wires them, and the
// package that xk6 imports.
package safeqps
