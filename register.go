// Package safeqps registers every part of the extension with k6. It is the one file that wires them, and the package
// that xk6 imports.
package safeqps

import (
	"go.k6.io/k6/js/modules"
	"go.k6.io/k6/output"
	"go.k6.io/k6/subcommand"

	"github.com/safeqps/xk6-safeqps/cli"
	"github.com/safeqps/xk6-safeqps/gate"
	"github.com/safeqps/xk6-safeqps/llm"
	"github.com/safeqps/xk6-safeqps/trace"
)

func init() { //nolint:gochecknoinits // k6 knows no other moment for it
	client := llm.New()
	modules.Register("k6/x/llm", client)

	modules.Register("k6/x/llm/trace", trace.New())

	g := gate.New(client)
	modules.Register("k6/x/llm/gate", g)
	output.RegisterExtension("llm", g.NewOutput)

	subcommand.RegisterExtension("llm", cli.New)
}
