package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/safeqps/xk6-safeqps/llm/llmtest"
)

// newSim is `k6 x llm sim`: the simulated engine, served.
func newSim(env environment) *cobra.Command {
	cfg := llmtest.DefaultServerConfig()
	cfg.Model = "sim"
	listen := "127.0.0.1:8000"

	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Serve a simulated engine with OpenAI's APIs and Anthropic's messages",
		Long: "Serves a simulated inference engine: continuous batching, chunked prefill, a paged KV cache with prefix\n" +
			"reuse, preemption, a waiting queue, and /metrics in vLLM's names. Nothing is inferred; the timing is that of a\n" +
			"step-time model (base + per prefill token + per running sequence), the text is filler. It runs until Ctrl-C.\n\n" +
			"Paths: /v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/embeddings, /v1/models, /tokenize,\n" +
			"/health, /metrics; POST /sim/stall?for=10s makes the engine stand still. A request can ask for a fault: see docs/simulated-engine.md.",
		Example: "  k6 x llm sim\n" +
			"  k6 x llm sim --max-num-seqs 8 --step-base 10ms --max-waiting 100\n" +
			"  k6 x llm sim --listen 127.0.0.1:9000 --speed 10",
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			address, err := listenAddress(listen)
			if err != nil {
				return wrongUse(err)
			}
			server, err := llmtest.NewServer(cfg)
			if err != nil {
				return wrongUse(errors.New(inFlags(strings.ReplaceAll(err.Error(), "in Engine: ", ""), cmd.Flags())))
			}
			ctx, stop := untilInterrupted(cmd.Context())
			defer stop()
			var lc net.ListenConfig
			listener, err := lc.Listen(ctx, "tcp", address)
			if err != nil {
				server.Close()

				return wrongUse(fmt.Errorf("--listen: %w", err))
			}
			fmt.Fprintf(env.stdout, "simulated engine %q on http://%s/v1 (metrics on /metrics); Ctrl-C ends it\n",
				cfg.Model, listener.Addr())
			if err := server.Serve(ctx, listener); err != nil && !errors.Is(err, net.ErrClosed) {
				return err //nolint:wrapcheck // names the address already
			}

			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&listen, "listen", listen, "address to serve on; 0.0.0.0:8000 to be reached from other machines")
	flags.StringVar(&cfg.Model, "model", cfg.Model, "name of the model that is served")
	flags.Float64Var(&cfg.Speed, "speed", cfg.Speed, "engine seconds in one second of the clock")
	flags.Uint64Var(&cfg.Engine.Seed, "seed", cfg.Engine.Seed, "decides everything that is random")
	flags.IntVar(&cfg.Engine.MaxNumSeqs, "max-num-seqs", cfg.Engine.MaxNumSeqs, "sequences in one step")
	flags.IntVar(&cfg.Engine.MaxNumBatchedTokens, "max-num-batched-tokens", cfg.Engine.MaxNumBatchedTokens,
		"token budget of one step, prefill and decode together")
	flags.IntVar(&cfg.Engine.MaxModelLen, "max-model-len", cfg.Engine.MaxModelLen, "context length in tokens")
	flags.IntVar(&cfg.Engine.NumBlocks, "num-blocks", cfg.Engine.NumBlocks, "size of the KV cache in blocks")
	flags.IntVar(&cfg.Engine.BlockSize, "block-size", cfg.Engine.BlockSize, "tokens in one block of the KV cache")
	flags.IntVar(&cfg.Engine.MaxWaiting, "max-waiting", cfg.Engine.MaxWaiting, "bound of the waiting queue; 0: none")
	flags.BoolVar(&cfg.Engine.DisablePrefixCaching, "no-prefix-caching", false, "do not reuse blocks of equal prefixes")
	flags.DurationVar(&cfg.Engine.StepBase, "step-base", cfg.Engine.StepBase, "time of a step without any token")
	flags.DurationVar(&cfg.Engine.StepPerPrefillToken, "step-per-prefill-token", cfg.Engine.StepPerPrefillToken,
		"time that each prefill token adds to a step")
	flags.DurationVar(&cfg.Engine.StepPerSequence, "step-per-sequence", cfg.Engine.StepPerSequence,
		"time that each decoding sequence adds to a step")
	flags.Float64Var(&cfg.Engine.StepJitter, "step-jitter", cfg.Engine.StepJitter, "spread of a step's time, 0 to 1")
	flags.DurationVar(&cfg.FixedGap, "fixed-gap", 0, "pass the engine by: a token exactly this often, whatever the load")
	flags.DurationVar(&cfg.FixedTTFT, "fixed-ttft", 0, "with --fixed-gap: the time to the first token")
	flags.Float64Var(&cfg.OutputMedian, "output-median", cfg.OutputMedian, "median length of an answer without max_tokens")
	flags.Float64Var(&cfg.OutputSigma, "output-sigma", cfg.OutputSigma, "its spread: the sigma of a lognormal")
	flags.BoolVar(&cfg.EarlyStop, "early-stop", false, "answers may end before max_tokens, unless ignore_eos is asked for")
	flags.IntVar(&cfg.QueueFullStatus, "queue-full-status", cfg.QueueFullStatus, "what a full queue answers: 429 or 503")
	flags.BoolVar(&cfg.ErrorsInStream, "errors-in-stream", false,
		"answer over-long and refused streaming requests with 200 and an error event, as llm-d-inference-sim does")
	flags.StringVar(&cfg.APIKey, "api-key", "", "demand this key as a bearer token")
	flags.IntVar(&cfg.KeepTruth, "keep-truth", 0, "keep the true times of so many answers: GET /sim/requests/{id}")

	return cmd
}

// listenAddress is where to listen. An address without a host is this machine's own: all interfaces want to be asked for.
func listenAddress(given string) (string, error) {
	host, port, err := net.SplitHostPort(given)
	if err != nil {
		return "", fmt.Errorf("--listen: got %q, expected host:port such as 127.0.0.1:8000", given)
	}

	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port), nil
}

var (
	fieldName = regexp.MustCompile(`[A-Z][A-Za-z]+`)
	humps     = regexp.MustCompile(`([a-z])([A-Z])`)
)

// inFlags names the fields of a configuration by the flags that set them.
func inFlags(problem string, flags *pflag.FlagSet) string {
	return fieldName.ReplaceAllStringFunc(problem, func(field string) string {
		flag := strings.ToLower(humps.ReplaceAllString(field, "$1-$2"))
		if flags.Lookup(flag) == nil {
			return field
		}

		return "--" + flag
	})
}
