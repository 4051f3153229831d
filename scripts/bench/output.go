package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

const outputScript = `
import llm from 'k6/x/llm';
export const options = {
  scenarios: { s: { executor: 'constant-arrival-rate', rate: 100, duration: '20s', preAllocatedVUs: 300, tags: { phase: 'steady' } } },
};
const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim', slo: { ttft: 500 } });
export default function () {
  client.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: 100, ignore_eos: true });
}
`

// benchOutput compares the CPU of a k6 run with and without --out llm=DIR: 100 requests of 100 tokens a second.
func benchOutput(ctx context.Context, k6 string, rounds int) error {
	path, err := filepath.Abs(k6)
	if err != nil {
		return fmt.Errorf("finding k6: %w", err)
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	script := filepath.Join(dir, "output.js")
	if err := os.WriteFile(script, []byte(outputScript), 0o600); err != nil {
		return fmt.Errorf("writing the script: %w", err)
	}
	seconds := func(url string, more ...string) (float64, error) {
		args := append([]string{"run", "--quiet", "--no-summary", "--no-usage-report", "--address", "", "-e", "URL=" + url}, more...)
		cmd := exec.CommandContext(ctx, path, append(args, script)...) // #nosec G204 -- this benchmark starts its own programs
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("k6: %w", err)
		}

		return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), nil
	}
	ratios := make([]float64, 0, rounds)
	for i := range rounds {
		srv, err := startServer(ctx, 10*time.Millisecond)
		if err != nil {
			return err
		}
		without, err := seconds(srv.url)
		if err != nil {
			return err
		}
		with, err := seconds(srv.url, "--out", fmt.Sprintf("llm=%s/results-%d", dir, i))
		if err != nil {
			return err
		}
		if err := srv.end(); err != nil {
			return err
		}
		ratios = append(ratios, with/without)
	}
	slices.Sort(ratios)
	fmt.Printf("Output: a run with --out llm=DIR takes %.3f times the CPU of one without (median of %d; %.3f to %.3f).\n\n",
		ratios[len(ratios)/2], rounds, ratios[0], ratios[len(ratios)-1])

	return nil
}
