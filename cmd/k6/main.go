// Command k6 is Grafana k6 with the xk6-safeqps extension built in. It exists so that `go build ./cmd/k6`
// gives the same binary as `xk6 build --with github.com/safeqps/xk6-safeqps`, without xk6.
package main

import (
	k6cmd "go.k6.io/k6/cmd"

	_ "github.com/safeqps/xk6-safeqps" // registers the extension with k6
)

func main() {
	k6cmd.Execute()
}
