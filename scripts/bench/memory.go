package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

const memoryScript = `
import { sleep } from 'k6';
import llm from 'k6/x/llm';
export const options = { scenarios: { s: { executor: 'per-vu-iterations', vus: 1000, iterations: 1, maxDuration: '5m' } } };
const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim' });
export default function () {
  if (__ENV.TOKENS === '0') { sleep(12); return; }
  client.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: Number(__ENV.TOKENS), ignore_eos: true });
}
`

// benchMemory compares the memory of a k6 whose 1,000 VUs sleep with one whose 1,000 VUs each hold a stream open.
func benchMemory(ctx context.Context, k6 string) error {
	const streams, gap = 1000, 50 * time.Millisecond
	srv, err := startServer(ctx, gap)
	if err != nil {
		return err
	}
	path, err := filepath.Abs(k6)
	if err != nil {
		return fmt.Errorf("finding k6: %w", err)
	}
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	script := filepath.Join(dir, "memory.js")
	if err := os.WriteFile(script, []byte(memoryScript), 0o600); err != nil {
		return fmt.Errorf("writing the script: %w", err)
	}
	peak := func(tokens int) (float64, error) {
		cmd := exec.CommandContext(ctx, path, "run", "--quiet", "--no-summary", "--no-usage-report", "--address", "", // #nosec G204 -- this benchmark starts its own programs
			"-e", "URL="+srv.url, "-e", "TOKENS="+strconv.Itoa(tokens), script)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return 0, fmt.Errorf("starting k6: %w", err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		highest := uint64(0)
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			select {
			case err := <-done:
				tick.Stop()

				return float64(highest) / (1 << 20), err //nolint:wrapcheck // a benchmark
			case <-tick.C:
				if p, err := process.NewProcess(int32(cmd.Process.Pid)); err == nil { // #nosec G115 -- a process number
					if m, err := p.MemoryInfo(); err == nil {
						highest = max(highest, m.RSS)
					}
				}
			}
		}
	}
	idle, err := peak(0)
	if err != nil {
		return err
	}
	open, err := peak(int(10 * time.Second / gap))
	if err != nil {
		return err
	}
	fmt.Printf("Memory: k6 with %d sleeping VUs peaks at %.0f MB, with as many streams open at %.0f MB: %.2f MB a stream.\n\n",
		streams, idle, open, (open-idle)/streams)

	return srv.end()
}
