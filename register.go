// Package safeqps registers every part of the extension with k6. It is the one file that wires them, and the package
// that xk6 imports.
package safeqps

import (
	"go.k6.io/k6/js/modules"
	"go.k6.io/k6/subcommand"

	"github.com/safeqps/xk6-safeqps/cli"
	"github.com/safeqps/xk6-safeqps/llm"
)

func init() { //nolint:gochecknoinits // k6 knows no other moment for it
	modules.Register("k6/x/llm", llm.New())
	subcommand.RegisterExtension("llm", cli.New)
}
