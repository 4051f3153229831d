package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/safeqps/xk6-safeqps/gate/capacity"
	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// capacityFlags are the flags of `k6 x llm capacity`.
type capacityFlags struct {
	script, contract, out, tolerance  string
	min, max, estimate                float64
	maxTime, idleWait                 time.Duration
	maxProbes                         int
	gpuHourPrice, gpus, maxCost       float64
	seed                              uint64
	env                               []string
	variables                         map[string]string // of env
	seedGiven, maxProbesGiven         bool
	workloads, arrivals               []string
	asJSON, fixedLengths, proveClient bool
}

// newCapacity is `k6 x llm capacity`: the search for Safe QPS.
func newCapacity(env environment) *cobra.Command {
	f := &capacityFlags{}
	cmd := &cobra.Command{
		Use:   "capacity",
		Short: "Find the Safe QPS: the highest rate at which the contract holds",
		Long: "Each probe is a full `k6 run` of your own script, with the rate in LLM_RATE (requests per second), the length of\n" +
			"the steady phase in LLM_STEADY and a seed in LLM_SEED; gate.open() takes the length over by itself. The search\n" +
			"brackets, bisects to the tolerance, and confirms the rate at the contract's full length. A probe that has\n" +
			"certainly failed is stopped early, one that is INCONCLUSIVE is repeated for longer. Its evidence is in\n" +
			"DIR/probe-NN, the answer in DIR/capacity.json, DIR/envelope.json and the page DIR/report.html. Run the same\n" +
			"command again after a crash or Ctrl-C, and the search goes on.\n\n" +
			"Exit codes: 0 found and confirmed, 1 no rate in the range passes, 2 not decided, 3 wrong use.",
		Example: "  k6 x llm capacity --script examples/capacity.js --contract examples/capacity.yaml --out search --min 1 --max 64\n" +
			"  k6 x llm capacity --script s.js --contract c.yaml --out search --workload chat:MIX=chat --workload rag:MIX=rag \\\n" +
			"    --arrival constant --arrival poisson --arrival bursty",
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.seedGiven, f.maxProbesGiven = cmd.Flags().Changed("seed"), cmd.Flags().Changed("max-probes")

			return runCapacity(cmd.Context(), env, f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.script, "script", "", "k6 script that sends LLM_RATE requests per second (required)")
	flags.StringVar(&f.contract, "contract", "", "contract that the probes are judged by (required)")
	flags.StringVar(&f.out, "out", "", "directory of the search (required)")
	flags.Float64Var(&f.min, "min", 1, "lowest rate, requests per second")
	flags.Float64Var(&f.max, "max", 1000, "highest rate")
	flags.Float64Var(&f.estimate, "estimate", 0, "where to begin, if you have an idea")
	flags.StringVar(&f.tolerance, "tolerance", "5%", "how near the answer has to be")
	flags.IntVar(&f.maxProbes, "max-probes", 0, "bound on the probes of one search; default: 10")
	flags.DurationVar(&f.maxTime, "max-time", 0, "bound on the time of one search's probes")
	flags.DurationVar(&f.idleWait, "idle-wait", time.Minute, "how long the service may take to come back to idle after a probe")
	flags.Float64Var(&f.gpuHourPrice, "gpu-hour-price", 0, "price of a GPU hour, for the cost of the search")
	flags.Float64Var(&f.gpus, "gpus", 1, "GPUs of the service under test")
	flags.Float64Var(&f.maxCost, "max-cost", 0, "bound on the cost of one search; needs --gpu-hour-price")
	flags.StringArrayVar(&f.workloads, "workload", nil, "NAME or NAME:KEY=VALUE,KEY=VALUE (keys in capitals): search with LLM_WORKLOAD=NAME and these variables; may be repeated")
	flags.StringArrayVar(&f.arrivals, "arrival", nil, "constant, poisson, bursty (k = 0.25) or a Gamma shape: search with LLM_BURSTINESS; may be repeated")
	flags.Uint64Var(&f.seed, "seed", 0, "seed of the probes' seeds; default: drawn, and kept with the search")
	flags.BoolVar(&f.fixedLengths, "fixed-lengths", false, "run every probe at full length and stop none early")
	flags.BoolVar(&f.proveClient, "prove-client", false, "repeat the answer with two load generators and compare: was one of them a bottleneck?")
	flags.StringArrayVarP(&f.env, "env", "e", nil, "NAME=VALUE: a variable for script and contract, as k6 run -e; may be repeated")
	flags.BoolVar(&f.asJSON, "json", false, "print the result as JSON")

	return cmd
}

// check reads what holds for all searches.
func (f *capacityFlags) check() error {
	for name, value := range map[string]string{"script": f.script, "contract": f.contract, "out": f.out} {
		if value == "" {
			return wrongUse(fmt.Errorf("--%s: got nothing, expected a path", name))
		}
	}
	if f.idleWait <= 0 {
		return wrongUse(fmt.Errorf("--idle-wait: got %s, expected a time above 0", f.idleWait))
	}
	if f.maxTime < 0 {
		return wrongUse(fmt.Errorf("--max-time: got %s, expected a time, or 0 for no bound", f.maxTime))
	}
	if f.maxProbesGiven && f.maxProbes < 1 {
		return wrongUse(fmt.Errorf("--max-probes: got %d, expected 1 or more", f.maxProbes))
	}
	if !(f.gpus > 0) {
		return wrongUse(fmt.Errorf("--gpus: got %v, expected more than 0", f.gpus))
	}
	f.variables = map[string]string{}
	for _, text := range f.env {
		name, value, err := variable("--env", text)
		if err != nil {
			return err
		}
		f.variables[name] = value
	}

	return nil
}

// agreed reads the contract, as a probe with these variables does.
func (f *capacityFlags) agreed(env environment, variables map[string]string) (*contract.Contract, error) {
	agreed, err := loadContract(env.without(searchOwn).with(variables), f.contract)
	if err != nil {
		return nil, err
	}

	return withBaseline(env, agreed, "")
}

// options are those of one search.
func (f *capacityFlags) options(agreed *contract.Contract) (capacity.Options, error) {
	tolerance, err := parseShare(f.tolerance)
	if err != nil {
		return capacity.Options{}, wrongUse(fmt.Errorf("--tolerance: got %q, expected a share such as 5%%", f.tolerance))
	}
	screen, err := screenLength(agreed)
	if err != nil {
		return capacity.Options{}, wrongUse(err)
	}
	o := capacity.Options{
		Names: optionNames, ScreenLength: screen,
		Min: f.min, Max: f.max, Tolerance: tolerance, Estimate: f.estimate,
		FullSeconds:     time.Duration(agreed.Phases.Steady).Seconds(),
		OverheadSeconds: time.Duration(agreed.Phases.Warmup + agreed.Phases.Recovery).Seconds(),
		MinRequests:     neededToPass(agreed), FixedLengths: f.fixedLengths, Seed: f.seed,
		MaxProbes: f.maxProbes, MaxSeconds: f.maxTime.Seconds(), GPUHourPrice: f.gpuHourPrice, GPUs: f.gpus, MaxCost: f.maxCost,
	}

	return o, wrongUse(o.Validate())
}

// optionNames are the options of a search as they are typed.
var optionNames = map[string]string{ //nolint:gochecknoglobals // a constant table
	"min": "--min", "max": "--max", "tolerance": "--tolerance", "estimate": "--estimate", "max_probes": "--max-probes",
	"max_seconds": "--max-time", "max_cost": "--max-cost", "gpu_hour_price": "--gpu-hour-price", "gpus": "--gpus", "seed": "--seed",
	"fixed_lengths": "--fixed-lengths", "full_seconds": "the contract's phases.steady",
	"overhead_seconds": "the contract's phases.warmup and phases.recovery", "min_requests": "the requests that the contract needs",
	"screen_length": "the length of short probes (queue_growth in the contract)",
}

// screenLength is the length of short probes; 0 for the search's own. Where the contract judges the growth of the queue it
// has to be seen in them: they would all be INCONCLUSIVE, and be repeated.
func screenLength(c *contract.Contract) (float64, error) {
	if !slices.ContainsFunc(c.Gate, func(criterion contract.Criterion) bool { return criterion.Metric == "queue_growth" }) {
		return 0, nil
	}
	steady := time.Duration(c.Phases.Steady)
	shortest := verdict.ShortestForGrowth(steady)
	if shortest > steady {
		return 0, fmt.Errorf("the contract's steady phase of %s is too short for queue_growth, which takes %s to be found: "+
			"lengthen it, or leave queue_growth out", steady, shortest)
	}

	return math.Max(shortest.Seconds()/steady.Seconds(), capacity.DefaultScreenLength), nil
}

// neededToPass is the fewest requests with which every criterion of the gate could pass.
func neededToPass(c *contract.Contract) int64 {
	most := 0
	for _, criterion := range c.Gate {
		if q, ok := criterion.EvidenceQuantile(); ok {
			if n, ok := contract.RequestsNeeded(q, c.Confidence); ok {
				most = max(most, n)
			}
		}
	}

	return int64(most)
}

// parseShare reads 5% or 0.05.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("got %q, expected a share such as 5%% or 0.05", text)
	}
	if percent {
		v /= 100
	}

	return v, nil
}
