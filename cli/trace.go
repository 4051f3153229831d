package cli

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/safeqps/xk6-safeqps/llm/tokens"
	"github.com/safeqps/xk6-safeqps/trace/arrival"
	"github.com/safeqps/xk6-safeqps/trace/format"
	"github.com/safeqps/xk6-safeqps/trace/workload"
)

// newTrace is `k6 x llm trace`: reading, making and changing trace files.
func newTrace(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Inspect, generate, convert and anonymize traces",
		Args:  unknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTraceInspect(env), newTraceGenerate(env), newTraceConvert(env), newTraceAnonymize(env))

	return cmd
}

// readFlags are the flags that say how a trace file is read.
type readFlags struct {
	format, unit, zeroOutput, timeZero, window string
	fields                                     map[string]string
	blockSize, limit                           int
	skipBadRows                                bool
}

func (r *readFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&r.format, "format", "", "form of the file: "+joined(format.Names())+"; default: detected")
	flags.StringVar(&r.unit, "unit", "", "unit of the timestamps: s, ms, us, ns or wall_clock; default: detected")
	fieldMapVar(flags, &r.fields, fieldMapUsage)
	flags.IntVar(&r.blockSize, "block-size", 0, "tokens that one hash id stands for; default: detected")
	flags.StringVar(&r.zeroOutput, "zero-output", "drop", "rows without output tokens: drop or keep")
	flags.StringVar(&r.timeZero, "time-zero", "first", "what is time zero: the first row, or the zero of the file (zero)")
	flags.StringVar(&r.window, "window", "", "part of the trace, both ends included, e.g. 5m:15m")
	flags.IntVar(&r.limit, "limit", 0, "only the first so many rows")
	flags.BoolVar(&r.skipBadRows, "skip-bad-rows", false, "count lines that can not be read instead of failing")
}

func joined[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}

	return strings.Join(texts, ", ")
}

func (r *readFlags) options() (format.Options, error) {
	window, err := parseWindow(r.window)

	return format.Options{
		Format: format.Name(r.format), Unit: format.Unit(r.unit), BlockSize: r.blockSize, Fields: r.fields,
		ZeroOutput: format.ZeroOutput(r.zeroOutput), SkipBadRows: r.skipBadRows, TimeZero: format.TimeZero(r.timeZero),
		Window: window, Limit: r.limit,
	}, err
}

// parseWindow reads FROM:TO; either may be left out.
func parseWindow(text string) (*format.Window, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no window
	}
	from, to, ok := strings.Cut(text, ":")
	w := format.Window{To: -1}
	var errFrom, errTo error
	if from != "" {
		w.From, errFrom = time.ParseDuration(from)
	}
	if to != "" {
		w.To, errTo = time.ParseDuration(to)
	}
	if !ok || errFrom != nil || errTo != nil {
		return nil, wrongUse(fmt.Errorf("--window: got %q, expected FROM:TO such as 5m:15m", text))
	}

	return &w, nil
}

func (r *readFlags) read(path string) (*format.Trace, error) {
	options, err := r.options()
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path) // #nosec G304 -- the user's own file
	if err != nil {
		return nil, wrongUse(fmt.Errorf("trace: %w", err))
	}
	defer func() { _ = file.Close() }()
	t, err := format.Read(path, file, options)
	if err != nil {
		return nil, wrongUse(fmt.Errorf("trace: %w", err))
	}

	return t, nil
}

func newTraceInspect(env environment) *cobra.Command {
	var asJSON bool
	r := &readFlags{}
	cmd := &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Show what a trace is: arrivals, burstiness, token lengths, prefix reuse, oddities",
		Example: "  k6 x llm trace inspect mooncake.jsonl\n  k6 x llm trace inspect azure.csv --window 0s:10m --json",
		Args:    exactArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := r.read(args[0])
			if err != nil {
				return err
			}
			summary := format.Summarize(t)
			if asJSON {
				return printJSON(env.stdout, summary)
			}

			return summary.Text(env.stdout) //nolint:wrapcheck // nothing to add
		},
	}
	r.register(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")

	return cmd
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("printing JSON: %w", err)
	}

	return nil
}

// generateFlags are the flags of `trace generate`.
type generateFlags struct {
	rate, startRate    float64
	stages, burstiness string
	duration           time.Duration
	count              int
	mix, prefix        string
	seed               uint64
	freeCount          bool
}

func newTraceGenerate(env environment) *cobra.Command {
	g := &generateFlags{}
	var out string
	var force, asJSON bool
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Make the trace of a synthetic workload; one seed gives the same bytes everywhere",
		Example: "  k6 x llm trace generate --rate 8 --duration 10m --burstiness 0.5 --mix chat --out chat.jsonl\n" +
			"  k6 x llm trace generate --stages 5m:10,10m:10,1m:0 --mix 'short=0.6@500/120,long=0.4@8000/300' --seed 7 --out ramp.jsonl",
		Args: exactArgs(),
		RunE: func(_ *cobra.Command, _ []string) error {
			config, err := g.config()
			if err != nil {
				return err
			}
			t, err := workload.Generate(config)
			if err != nil {
				return wrongUse(fmt.Errorf("trace generate: %w", err))
			}

			return writeAndDescribe(env, out, force, asJSON, t)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Float64Var(&g.rate, "rate", 0, "mean arrivals per second")
	flags.StringVar(&g.stages, "stages", "", "changing rates, DURATION:TARGET each, e.g. 5m:10,10m:10; --start-rate is where they begin")
	flags.Float64Var(&g.startRate, "start-rate", 0, "with --stages: the rate at time zero")
	flags.DurationVar(&g.duration, "duration", 0, "length of the trace")
	flags.IntVar(&g.count, "count", 0, "number of requests")
	flags.StringVar(&g.burstiness, "burstiness", "1", "Gamma shape k of the gaps: 1 Poisson, less bursty, more smooth, or constant")
	flags.BoolVar(&g.freeCount, "free-count", false, "leave the number of arrivals to chance, as in nature")
	flags.StringVar(&g.mix, "mix", "", "lengths: chat, rag, summarize, agent, 'short=0.6,long=0.4@8000/300', or JSON")
	flags.StringVar(&g.prefix, "prefix", "", `shared prefixes as JSON, e.g. '{"share": 0.5, "tokens": 1024, "groups": 8}'`)
	flags.Uint64Var(&g.seed, "seed", 0, "decides everything that is random")
	flags.StringVar(&out, "out", "-", outFlag)
	flags.BoolVar(&force, "force", false, "replace an existing file")
	flags.BoolVar(&asJSON, "json", false, describeFlag)

	return cmd
}

func (g *generateFlags) config() (workload.Config, error) {
	c := workload.Config{Arrivals: arrival.Config{
		Rate: g.rate, Duration: g.duration, Count: g.count, FreeCount: g.freeCount, Seed: g.seed,
	}}
	var err error
	if g.stages != "" {
		if g.rate != 0 {
			return c, wrongUse(errors.New("--rate and --stages: expected one of them; the stages begin at --start-rate"))
		}
		c.Arrivals.Rate = g.startRate
		if c.Arrivals.Stages, err = parseStages(g.stages); err != nil {
			return c, err
		}
	}
	if c.Arrivals.Burstiness, err = parseBurstiness(g.burstiness); err != nil {
		return c, err
	}
	if g.mix == "" {
		return c, wrongUse(errors.New("--mix: got nothing, expected chat, rag, summarize, agent, 'short=0.6,long=0.4@8000/300', or JSON"))
	}
	c.Mix, err = workload.ParseMix(g.mix, func(path string) (*format.Trace, error) { return (&readFlags{}).read(path) })
	if err != nil {
		return c, wrongUse(fmt.Errorf("--mix: %w", err))
	}
	if g.prefix != "" {
		var value any
		if err := json.Unmarshal([]byte(g.prefix), &value); err != nil {
			return c, wrongUse(fmt.Errorf(`--prefix: got %q, expected JSON such as {"share": 0.5, "tokens": 1024, "groups": 8}: %w`, g.prefix, err))
		}
		prefix, err := workload.ParsePrefix(value)
		if err != nil {
			return c, wrongUse(fmt.Errorf("--prefix: %w", err))
		}
		c.Prefix = &prefix
	}

	return c, nil
}

func parseBurstiness(text string) (float64, error) {
	if text == "constant" {
		return math.Inf(1), nil
	}
	k, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(k) {
		return 0, wrongUse(fmt.Errorf("--burstiness: got %q, expected a number above 0, or constant", text))
	}

	return k, nil
}

// parseStages reads DURATION:TARGET,…
func parseStages(text string) ([]arrival.Stage, error) {
	var stages []arrival.Stage
	for part := range strings.SplitSeq(text, ",") {
		length, target, ok := strings.Cut(strings.TrimSpace(part), ":")
		d, errLength := time.ParseDuration(length)
		rate, errTarget := strconv.ParseFloat(target, 64)
		if !ok || errLength != nil || errTarget != nil {
			return nil, wrongUse(fmt.Errorf("--stages: got %q, expected DURATION:TARGET such as 5m:10", part))
		}
		stages = append(stages, arrival.Stage{Duration: d, Target: rate})
	}

	return stages, nil
}

func newTraceConvert(env environment) *cobra.Command {
	r := &readFlags{}
	var out string
	var force, asJSON, lengthsOnly bool
	var speed, rate float64
	cmd := &cobra.Command{
		Use:     "convert FILE",
		Short:   "Write a trace in this project's form, which Mooncake's and vLLM's readers take too; cut or rescale it on the way",
		Example: "  k6 x llm trace convert azure.csv --out azure.jsonl\n  k6 x llm trace convert mooncake.jsonl --window 0s:5m --rate 4 --out slice.jsonl",
		Args:    exactArgs("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := r.read(args[0])
			if err != nil {
				return err
			}
			if speed != 0 && rate != 0 {
				return wrongUse(errors.New("--speed and --rate: expected one of them"))
			}
			if speed != 0 {
				t, err = format.Speed(t, speed)
			}
			if rate != 0 {
				t, err = format.Rate(t, rate)
			}
			if err != nil {
				return wrongUse(fmt.Errorf("trace convert: %w", err))
			}
			if lengthsOnly {
				t = format.LengthsOnly(t)
			}

			return writeAndDescribe(env, out, force, asJSON, t)
		},
	}
	r.register(cmd.Flags())
	cmd.Flags().Float64Var(&speed, "speed", 0, "replay so many times as fast as recorded")
	cmd.Flags().Float64Var(&rate, "rate", 0, "rescale to this mean rate, in requests per second")
	cmd.Flags().BoolVar(&lengthsOnly, "lengths-only", false, "leave out hash ids, sessions, elapsed times and prompts, which CSV does not hold")
	cmd.Flags().StringVar(&out, "out", "-", outFlag)
	cmd.Flags().BoolVar(&force, "force", false, "replace an existing file")
	cmd.Flags().BoolVar(&asJSON, "json", false, describeFlag)

	return cmd
}

func newTraceAnonymize(env environment) *cobra.Command {
	var (
		out, keyFile, encoding, unit, zeroOutput, window string
		force, keepHashes, skipBadRows, asJSON           bool
		fields                                           map[string]string
		keepClasses                                      []string
		blockSize, limit                                 int
	)
	cmd := &cobra.Command{
		Use:   "anonymize LOG",
		Short: "Turn a log of production requests into a trace: times, lengths, classes, sessions, prefix similarity, never text",
		Long: "Reads OpenAI- or Anthropic-style request logs (JSONL) with text, or with lengths only. The trace holds arrival\n" +
			"times from zero, token counts, class, session and keyed hashes of prompt blocks, so that prefix reuse can be\n" +
			"replayed. It never holds text, names, ids, the clock time or the key; classes keep the names that --keep-classes lists.\n" +
			"Without --key-file the key is drawn at random and forgotten.",
		Example: "  k6 x llm trace anonymize requests.jsonl --encoding o200k_base --out trace.jsonl",
		Args:    exactArgs("LOG"),
		RunE: func(_ *cobra.Command, args []string) error {
			options := format.AnonymizeOptions{
				KeepHashes: keepHashes, KeepClasses: keepClasses, BlockSize: blockSize, Fields: fields, Unit: format.Unit(unit),
				ZeroOutput: format.ZeroOutput(zeroOutput), SkipBadRows: skipBadRows, Limit: limit,
			}
			var err error
			if options.Window, err = parseWindow(window); err != nil {
				return err
			}
			if keyFile != "" {
				if options.Key, err = os.ReadFile(keyFile); err != nil { // #nosec G304 -- the user's own file
					return wrongUse(fmt.Errorf("--key-file: %w", err))
				}
			}
			if encoding != "" {
				if options.Tokenizer, err = tokens.New(encoding); err != nil {
					return wrongUse(fmt.Errorf("--encoding: %w", err))
				}
			}
			log, err := os.Open(args[0])
			if err != nil {
				return wrongUse(fmt.Errorf("trace anonymize: %w", err))
			}
			defer func() { _ = log.Close() }()
			t, report, err := format.Anonymize(args[0], log, options)
			if err != nil {
				return wrongUse(fmt.Errorf("trace anonymize: %w", err))
			}
			if err := writeTrace(env.mute(asJSON), out, force, t); err != nil {
				return err
			}
			if asJSON {
				return printJSON(env.stderr, report)
			}
			fmt.Fprintf(env.stderr, "%d requests; prompt lengths: %d from usage, %d counted; answer lengths: %d from usage, %d counted; "+
				"%d with prefix blocks\n", len(t.Rows), report.InputFromUsage, report.InputCounted, report.OutputFromUsage,
				report.OutputCounted, report.RowsWithBlocks)
			if report.ClassesReplaced > 0 {
				fmt.Fprintf(env.stderr, "%d classes were replaced by names such as class-1: name those that may stay with --keep-classes\n",
					report.ClassesReplaced)
			}

			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&encoding, "encoding", "", "tiktoken encoding that counts prompts and cuts them into blocks, e.g. o200k_base; without it rows must say their lengths")
	flags.StringVar(&keyFile, "key-file", "", "file that holds the key, at least 16 bytes; default: drawn and forgotten")
	flags.BoolVar(&keepHashes, "keep-hashes", false, "write the keyed hashes, so that traces made with one key can be joined")
	flags.StringSliceVar(&keepClasses, "keep-classes", nil, "classes that keep their names, besides short, typical, long and extreme; the others become class-1, class-2, …")
	flags.IntVar(&blockSize, "block-size", 0, "tokens in a block; default: 512")
	fieldMapVar(flags, &fields, "where timestamp, input_length, output_length, session_id, class, request, response are in a line, e.g. "+
		"timestamp=ts,class=meta.tier; a name with a comma in a --fields of its own")
	flags.StringVar(&unit, "unit", "", "unit of the timestamps; default: detected")
	flags.StringVar(&zeroOutput, "zero-output", "drop", "requests without output tokens: drop or keep")
	flags.StringVar(&window, "window", "", "part of the log, both ends included, e.g. 5m:15m")
	flags.IntVar(&limit, "limit", 0, "only the first so many requests")
	flags.BoolVar(&skipBadRows, "skip-bad-rows", false, "count lines that can not be read instead of failing")
	flags.StringVar(&out, "out", "-", outFlag)
	flags.BoolVar(&force, "force", false, "replace an existing file")
	flags.BoolVar(&asJSON, "json", false, "print the report as JSON, on standard error")

	return cmd
}

const outFlag = "file to write: .jsonl, or .csv for lengths only, .gz after it for gzip; - is standard output"

const describeFlag = "print what the trace is as JSON, on standard error"

// writeAndDescribe writes a trace, and says what it is: in a line for people, or as `trace inspect --json` does.
func writeAndDescribe(env environment, path string, force, asJSON bool, t *format.Trace) error {
	if err := writeTrace(env.mute(asJSON), path, force, t); err != nil || !asJSON {
		return err
	}

	return printJSON(env.stderr, format.Summarize(t))
}

// traceWriter is how a trace is written to a file of a name.
func traceWriter(path string) (func(io.Writer, *format.Trace) error, error) {
	plain, zipped := strings.CutSuffix(path, ".gz")
	var write func(io.Writer, *format.Trace) error
	switch {
	case path == "-", strings.HasSuffix(plain, ".jsonl"):
		write = format.Write
	case strings.HasSuffix(plain, ".csv"):
		write = format.WriteCSV
	default:
		return nil, wrongUse(fmt.Errorf("--out: got %q, expected a name that ends in .jsonl or .csv, or with .gz after that, or - for standard output", path))
	}
	if !zipped {
		return write, nil
	}

	return func(w io.Writer, t *format.Trace) error {
		zip := gzip.NewWriter(w)
		if err := write(zip, t); err != nil {
			return err
		}

		return zip.Close() //nolint:wrapcheck // the caller names the file
	}, nil
}

// writeBuffered writes a trace in large pieces.
func writeBuffered(w io.Writer, write func(io.Writer, *format.Trace) error, t *format.Trace) error {
	buffered := bufio.NewWriter(w)
	if err := write(buffered, t); err != nil {
		return err
	}

	return buffered.Flush() //nolint:wrapcheck // the caller names the file
}

// writeTrace writes a trace to a file as a whole, or not at all: it appears under its name once it is complete.
func writeTrace(env environment, path string, force bool, t *format.Trace) error {
	write, err := traceWriter(path)
	if err != nil {
		return err
	}
	if path == "-" {
		if err := writeBuffered(env.stdout, write, t); err != nil {
			return fmt.Errorf("writing the trace: %w", err)
		}
		tellLeftOut(env, t)

		return nil
	}
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			return wrongUse(fmt.Errorf("--out: %s is not a regular file; expected a file name, or - for standard output", path))
		}
		if !force {
			return wrongUse(fmt.Errorf("--out: %s exists; give another name, or --force to replace it", path))
		}
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return wrongUse(fmt.Errorf("--out: %w", err))
	}
	err = errors.Join(writeBuffered(file, write, t), file.Chmod(0o644), file.Close()) //nolint:gosec // a trace is for sharing
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		err = fmt.Errorf("writing the trace to %s: %w", path, err)
		if errors.Is(err, format.ErrNotCSV) {
			err = wrongUse(fmt.Errorf("%w: write .jsonl, or leave out all but lengths and classes with `trace convert --lengths-only`", err))
		}

		return errors.Join(err, os.Remove(file.Name()))
	}
	fmt.Fprintf(env.stderr, "%s: %d requests over %s\n", path, len(t.Rows), span(t).Round(time.Millisecond))
	tellLeftOut(env, t)

	return nil
}

// tellLeftOut says which lines of the file are not in the trace.
func tellLeftOut(env environment, t *format.Trace) {
	if left := t.Notes.LeftOut(); left != "" {
		fmt.Fprintln(env.stderr, left)
	}
}

func span(t *format.Trace) time.Duration {
	if len(t.Rows) == 0 {
		return 0
	}

	return t.Rows[len(t.Rows)-1].Due
}
