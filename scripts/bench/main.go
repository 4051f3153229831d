// Command bench measures the client against two references on the same streams, in one run: a bare Go reader (line
// scanner, encoding/json, timestamps) and the floor (reads and discards). The server is the simulated engine in this
// process, with a fixed gap between tokens; each client is a process of its own, whose CPU time is taken from the
// operating system while all streams are open. Run it with `make bench`.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

type load struct {
	streams int
	gap     time.Duration
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	role := flag.String("role", "", "internal: run as one of the reference clients")
	url := flag.String("url", "", "internal: where the server is")
	streams := flag.Int("streams", 0, "internal: how many streams")
	tokens := flag.Int("tokens", 0, "internal: how long they are")
	seconds := flag.Int("seconds", 8, "how long each measurement lasts")
	rounds := flag.Int("rounds", 3, "how often each measurement is repeated; medians are shown")
	k6 := flag.String("k6", "./k6", "the k6 binary with the extension in it")
	at := flag.Int("at", 0, "measure at this many streams only")
	only := flag.String("only", "client,memory,output,dispatch", "which parts to run")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch *role {
	case "bare", "floor":
		return reference(ctx, *role, *url, *streams, *tokens)
	case "":
		return bench(ctx, *k6, *only, *at, time.Duration(*seconds)*time.Second, *rounds)
	default:
		return fmt.Errorf("unknown role %q", *role)
	}
}

func bench(ctx context.Context, k6, only string, at int, window time.Duration, rounds int) error {
	if strings.Contains(only, "client") {
		if err := benchClients(ctx, k6, at, window, rounds); err != nil {
			return err
		}
	}
	if strings.Contains(only, "memory") {
		if err := benchMemory(ctx, k6); err != nil {
			return err
		}
	}
	if strings.Contains(only, "output") {
		if err := benchOutput(ctx, k6, rounds); err != nil {
			return err
		}
	}
	if strings.Contains(only, "dispatch") {
		return benchDispatch(ctx)
	}

	return nil
}

// figures are what one measurement of one client gave.
type figures struct {
	cpuPerChunk float64 // µs
	stampP50    float64 // ms that a chunk was stamped after it was written
	stampP99    float64
	itlP50      float64 // ms
	itlP99      float64
}

func benchClients(ctx context.Context, k6 string, at int, window time.Duration, rounds int) error {
	loads := []load{
		{20, 10 * time.Millisecond},
		{100, 10 * time.Millisecond},
		{300, 10 * time.Millisecond},
		{1000, 50 * time.Millisecond},
	}
	clients := []string{"floor", "bare", "k6"}
	fmt.Println("Client: CPU per chunk, how late chunks are stamped, and the ITL that comes of it (true gap as in the first")
	fmt.Println("column). Ratios are to the bare reader; medians of", rounds, "rounds; the server runs on the same cores.")
	fmt.Println()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "streams\tgap ms\tclient\tCPU µs/chunk\tto bare\tto floor\tstamp p50 ms\tp99 ms\tto bare\tITL p50 ms\tp99 ms\tto bare\t")
	for _, l := range loads {
		if at != 0 && at != l.streams {
			continue
		}
		measured := map[string][]figures{}
		for range rounds {
			for _, client := range clients { // interleaved, so that a slow minute hits all of them
				f, err := measure(ctx, k6, client, l, window)
				if err != nil {
					return fmt.Errorf("%s, %d streams: %w", client, l.streams, err)
				}
				measured[client] = append(measured[client], f)
			}
		}
		floor, bare := median(measured["floor"]), median(measured["bare"])
		for _, client := range clients {
			f := median(measured[client])
			if client == "floor" {
				fmt.Fprintf(out, "%d\t%g\t%s\t%.1f\t%.2f\t1.00\t\t\t\t\t\t\t\n",
					l.streams, ms(l.gap), client, f.cpuPerChunk, f.cpuPerChunk/bare.cpuPerChunk)

				continue
			}
			fmt.Fprintf(out, "%d\t%g\t%s\t%.1f\t%.2f\t%.2f\t%.3f\t%.3f\t%.2f\t%.2f\t%.2f\t%.2f\t\n",
				l.streams, ms(l.gap), client, f.cpuPerChunk, f.cpuPerChunk/bare.cpuPerChunk, f.cpuPerChunk/floor.cpuPerChunk,
				f.stampP50, f.stampP99, f.stampP99/bare.stampP99, f.itlP50, f.itlP99, f.itlP99/bare.itlP99)
		}
		if err := out.Flush(); err != nil {
			return fmt.Errorf("printing: %w", err)
		}
	}
	fmt.Println()

	return nil
}

func median(all []figures) figures {
	pick := func(of func(figures) float64) float64 {
		values := make([]float64, len(all))
		for i, f := range all {
			values[i] = of(f)
		}
		slices.Sort(values)

		return values[len(values)/2]
	}

	return figures{
		cpuPerChunk: pick(func(f figures) float64 { return f.cpuPerChunk }),
		stampP50:    pick(func(f figures) float64 { return f.stampP50 }),
		stampP99:    pick(func(f figures) float64 { return f.stampP99 }),
		itlP50:      pick(func(f figures) float64 { return f.itlP50 }),
		itlP99:      pick(func(f figures) float64 { return f.itlP99 }),
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// server is a simulated engine of this process.
type server struct {
	sim *llmtest.Server
	url string
	end func() error
}

func startServer(ctx context.Context, gap time.Duration) (*server, error) {
	cfg := llmtest.DefaultServerConfig()
	cfg.FixedGap, cfg.FixedTTFT = gap, 100*time.Millisecond
	cfg.Model, cfg.KeepTruth = "sim", 4000
	sim, err := llmtest.NewServer(cfg)
	if err != nil {
		return nil, fmt.Errorf("starting the simulated engine: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	serving, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- sim.Serve(serving, l) }()

	return &server{sim: sim, url: "http://" + l.Addr().String() + "/v1", end: func() error {
		cancel()

		return <-done
	}}, nil
}

// measure runs one client on so many streams, and takes its figures from a window in which all of them are open.
func measure(ctx context.Context, k6, client string, l load, window time.Duration) (figures, error) {
	srv, err := startServer(ctx, l.gap)
	if err != nil {
		return figures{}, err
	}
	const lead, tail = 3 * time.Second, 2 * time.Second
	tokens := int((lead + window + tail) / l.gap)
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return figures{}, fmt.Errorf("making a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()

	cmd, err := command(ctx, k6, client, srv.url, dir, l, tokens)
	if err != nil {
		return figures{}, err
	}
	if err := cmd.Start(); err != nil {
		return figures{}, fmt.Errorf("starting the client: %w", err)
	}
	ids, err := waitForStreams(ctx, srv.sim, l.streams)
	if err != nil {
		_ = cmd.Process.Kill()

		return figures{}, err
	}
	time.Sleep(time.Second) // let the connections' start-up cost pass
	begin, cpuBefore := time.Now(), cpuTime(cmd.Process.Pid)
	time.Sleep(window)
	end := time.Now()
	if err := cmd.Wait(); err != nil {
		return figures{}, fmt.Errorf("the client: %w", err)
	}
	// All that a client spends on its chunks counts, also what comes after the last one: k6 takes its samples in then.
	cpuAfter := (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()

	f := figures{}
	paidFor := 0
	truths := map[string]map[int]int64{}
	for _, id := range ids {
		truth, ok := srv.sim.Truth(id)
		if !ok {
			return f, fmt.Errorf("no truth of %s", id)
		}
		truths[id] = map[int]int64{}
		n := 0
		for _, c := range truth.Chunks {
			if c.Tokens == 0 {
				continue
			}
			if c.SentNS >= begin.UnixNano() {
				paidFor++
				if c.SentNS < end.UnixNano() {
					truths[id][n] = c.SentNS
				}
			}
			n++
		}
	}
	if err := srv.end(); err != nil {
		return f, err
	}
	f.cpuPerChunk = (cpuAfter - cpuBefore) * 1e6 / float64(paidFor)
	if client == "floor" {
		return f, nil
	}

	return f, compare(&f, filepath.Join(dir, "stamps.jsonl"), truths)
}

// printed is how many streams' stamps a client writes down: enough to judge by, and so few that writing them costs
// nothing against reading all.
const printed = 20

func every(streams int) int { return max(1, streams/printed) }

// stamps are the times at which a client saw the chunks of one answer, in nanoseconds since 1970.
type stamps struct {
	ID string  `json:"id"`
	NS []int64 `json:"ns"`
}

// compare holds a client's stamps against the truth.
func compare(f *figures, path string, truths map[string]map[int]int64) error {
	data, err := os.ReadFile(path) // #nosec G304 -- the file that this program had written
	if err != nil {
		return fmt.Errorf("reading the client's stamps: %w", err)
	}
	var late, gaps []float64
	seen, expected := 0, 0
	for line := range strings.Lines(string(data)) {
		var s stamps
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return fmt.Errorf("reading the client's stamps: %w", err)
		}
		expected += len(truths[s.ID])
		for i, at := range s.NS {
			sent, ok := truths[s.ID][i]
			if !ok {
				continue
			}
			seen++
			late = append(late, float64(at-sent)/1e6)
			if i > 0 {
				gaps = append(gaps, float64(at-s.NS[i-1])/1e6)
			}
		}
	}
	if seen != expected || seen == 0 {
		return fmt.Errorf("the client saw %d chunks of %d", seen, expected)
	}
	f.stampP50, f.stampP99 = quantile(late, 0.5), quantile(late, 0.99)
	f.itlP50, f.itlP99 = quantile(gaps, 0.5), quantile(gaps, 0.99)

	return nil
}

func quantile(values []float64, q float64) float64 {
	slices.Sort(values)

	return values[min(int(q*float64(len(values))), len(values)-1)]
}

func cpuTime(pid int) float64 {
	p, err := process.NewProcess(int32(pid)) // #nosec G115 -- a process number
	if err != nil {
		return 0
	}
	t, err := p.Times()
	if err != nil {
		return 0
	}

	return t.User + t.System
}

// waitForStreams waits until all streams have begun, and returns their ids.
func waitForStreams(ctx context.Context, sim *llmtest.Server, n int) ([]string, error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		begun := 0
		ids := sim.TruthIDs()
		for _, id := range ids {
			if truth, ok := sim.Truth(id); ok && truth.OutputTokens > 0 {
				begun++
			}
		}
		if begun >= n {
			return ids, nil
		}
	}

	return nil, fmt.Errorf("not all of %d streams began within a minute", n)
}

func command(ctx context.Context, k6, client, url, dir string, l load, tokens int) (*exec.Cmd, error) {
	if client != "k6" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding this program: %w", err)
		}
		cmd := exec.CommandContext(ctx, self, "-role", client, "-url", url, // #nosec G204 -- this benchmark starts its own programs
			"-streams", strconv.Itoa(l.streams), "-tokens", strconv.Itoa(tokens))
		cmd.Dir, cmd.Stderr = dir, os.Stderr

		return cmd, nil
	}
	path, err := filepath.Abs(k6)
	if err != nil {
		return nil, fmt.Errorf("finding k6: %w", err)
	}
	script := filepath.Join(dir, "bench.js")
	if err := os.WriteFile(script, []byte(k6Script), 0o600); err != nil {
		return nil, fmt.Errorf("writing the script: %w", err)
	}
	cmd := exec.CommandContext(ctx, path, "run", "--quiet", "--no-summary", "--no-usage-report", "--address", "", // #nosec G204 -- this benchmark starts its own programs
		"--log-format", "raw", "--console-output", filepath.Join(dir, "stamps.jsonl"),
		"-e", "URL="+url, "-e", "TOKENS="+strconv.Itoa(tokens), "-e", "STREAMS="+strconv.Itoa(l.streams),
		"-e", "EVERY="+strconv.Itoa(every(l.streams)), script)
	cmd.Dir, cmd.Stderr = dir, os.Stderr

	return cmd, nil
}

const k6Script = `
import llm from 'k6/x/llm';
export const options = {
  scenarios: { s: { executor: 'per-vu-iterations', vus: Number(__ENV.STREAMS), iterations: 1, maxDuration: '5m' } },
};
const client = new llm.Client({ baseURL: __ENV.URL, model: 'sim' });
export default function () {
  const r = client.chat({ messages: [{ role: 'user', content: 'hi' }], max_tokens: Number(__ENV.TOKENS), ignore_eos: true });
  if (!r.ok) throw new Error(r.error.message);
  if (__VU % Number(__ENV.EVERY) !== 0) return;
  let at = r.startTime + r.timings.ttft;
  const ns = [Math.round(at * 1e6)];
  for (const gap of r.timings.itl) { at += gap; ns.push(Math.round(at * 1e6)); }
  console.log(JSON.stringify({ id: r.requestId, ns }));
}
`
