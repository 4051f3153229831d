package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// benchDispatch runs the executor's own benchmarks.
func benchDispatch(ctx context.Context) error {
	fmt.Println("Executor: how late arrivals are dispatched.")
	fmt.Println()
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "Dispatch", "-benchtime", "1x", "./trace")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("the executor's benchmarks: %w", err)
	}

	return nil
}
