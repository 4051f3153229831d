package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/safeqps/xk6-safeqps/gate/contract"
	"github.com/safeqps/xk6-safeqps/gate/results"
	"github.com/safeqps/xk6-safeqps/gate/verdict"
)

// load is a synthetic run: lognormal latencies whose level wanders over time as that of a queue does.
type load struct {
	n       int
	seconds float64
	// workload seeds what both runs of a pair share, noise what they do not.
	workload, noise uint64
	slower          float64 // factor on all latencies
	errors          float64 // share
	swing           float64 // standard deviation of the wandering level, shared by runs of one workload
	own             float64 // the same, of the run's own
	cpu             float64 // of the load generator; 0 where it was not measured
}

func (l load) sample() *sample {
	shared, own := rand.New(rand.NewPCG(l.workload, 1)), rand.New(rand.NewPCG(l.noise, 2))
	s := &sample{seconds: l.seconds}
	s.completed, s.tokens = make([]float64, int(l.seconds)), make([]float64, int(l.seconds))
	common, private := 0.0, 0.0
	step := l.seconds / float64(l.n)
	keep := math.Exp(-step / 5) // the level is forgotten within 5 s
	for i := range l.n {
		common = keep*common + math.Sqrt(1-keep*keep)*shared.NormFloat64()
		private = keep*private + math.Sqrt(1-keep*keep)*own.NormFloat64()
		size := 0.5 * shared.NormFloat64()
		level := math.Exp(l.swing*common + l.own*private)
		q := request{row: int64(i), at: step * float64(i), failed: own.Float64() < l.errors}
		for m, scale := range []float64{100, 10, 30, 1000} {
			q.values[m] = scale * l.slower * level * math.Exp(size+0.1*own.NormFloat64())
			if q.failed {
				q.values[m] = math.Inf(1)
			}
		}
		s.requests = append(s.requests, q)
		if second := int(q.at); second < len(s.completed) && !q.failed {
			s.completed[second]++
			s.tokens[second] += 100 * math.Exp(size)
		}
	}
	return s
}

func standard() load {
	return load{n: 3000, seconds: 600, workload: 1, noise: 1, slower: 1, swing: 0.3, own: 0.1}
}

func options() Options { return Options{Resamples: 200, Seed: 1}.withDefaults() }

func compared(t testing.TB, a, b load, o Options) *Report {
	t.Helper()
	r, err := compareSamples(a.sample(), b.sample(), o)
	require.NoError(t, err)
	return r
}

func row(t testing.TB, r *Report, metric, statistic string) Row {
	t.Helper()
	for _, x := range r.Rows {
		if x.Metric == metric && x.Statistic == statistic {
			return x
		}
	}
	require.Fail(t, "no such row", "%s %s", metric, statistic)
	return Row{}
}

func TestTheSameServiceIsTheSame(t *testing.T) {
	a, b := standard(), standard()
	b.noise = 2
	r := compared(t, a, b, options())
	require.Equal(t, 3000, r.PairedRows)
	require.Equal(t, 15, r.Blocks)
	paired := row(t, r, "ttft", "paired")
	require.Equal(t, Same, paired.Answer)
	require.InDelta(t, 1, *paired.Change, 0.03)
	require.Equal(t, Same, row(t, r, "requests_per_second", "mean").Answer)
	require.Equal(t, Same, row(t, r, "error_share", "mean").Answer)
	require.Len(t, r.Rows, 4*4+3)
	require.NotContains(t, []Answer{Better, Worse, Mixed}, r.Answer)

	b.noise = a.noise // not a bit differs
	r = compared(t, a, b, options())
	require.Equal(t, Same, r.Answer)
	require.InDelta(t, 1, *row(t, r, "e2e", "p99").Change, 0)
	require.InDelta(t, 1, *row(t, r, "e2e", "p99").Low, 0)
}

func TestASlowdownIsWorseAndASpeedupBetter(t *testing.T) {
	a, b := standard(), standard()
	b.noise, b.slower = 2, 1.3
	r := compared(t, a, b, options())
	require.Equal(t, Worse, r.Answer)
	for _, statistic := range []string{"p50", "p95", "paired"} {
		x := row(t, r, "tpot", statistic)
		require.Equal(t, Worse, x.Answer, statistic)
		require.InDelta(t, 1.3, *x.Change, 0.1, statistic)
		require.Less(t, *x.Low, *x.Change)
		require.Greater(t, *x.High, *x.Change)
		require.LessOrEqual(t, *x.P, *x.PAdjusted)
	}
	require.Equal(t, Same, row(t, r, "requests_per_second", "mean").Answer)
	r = compared(t, b, a, options())
	require.Equal(t, Better, r.Answer)
	require.InDelta(t, 1/1.3, *row(t, r, "tpot", "paired").Change, 0.05)
}

func TestThroughputIsBetterWhenHigher(t *testing.T) {
	a, b := standard(), standard()
	b.noise = 2
	sa, sb := a.sample(), b.sample()
	for i := range sb.tokens {
		sb.tokens[i] *= 1.5
	}
	r, err := compareSamples(sa, sb, options())
	require.NoError(t, err)
	x := row(t, r, "output_tokens_per_second", "mean")
	require.Equal(t, Better, x.Answer)
	require.InDelta(t, 1.5, *x.Change, 1e-9)
	sb.tokens = nil
	r, err = compareSamples(sa, sb, options())
	require.NoError(t, err)
	x = row(t, r, "output_tokens_per_second", "mean")
	require.Equal(t, NotEnough, x.Answer)
	require.Equal(t, "not measured", x.Note)
	require.Nil(t, x.Change)
}

func TestErrors(t *testing.T) {
	a, b := standard(), standard()
	b.noise, b.errors = 2, 0.06
	r := compared(t, a, b, options())
	x := row(t, r, "error_share", "mean")
	require.Equal(t, Worse, x.Answer)
	require.InDelta(t, 0.06, *x.Change, 0.015)
	// A failed request is slower than any limit: a p99 among them is worse, though it has no number.
	p99 := row(t, r, "ttft", "p99")
	require.Nil(t, p99.B)
	require.NotNil(t, p99.A)
	require.Equal(t, "the quantile falls among failed requests", p99.Note)
	require.NotEqual(t, Better, p99.Answer)
	require.Equal(t, Worse, r.Answer)
	content, err := r.JSON()
	require.NoError(t, err)
	require.True(t, json.Valid(content))
	// Two runs of a hundred without an error do not show that there are none.
	a.n, b.n, b.errors = 100, 100, 0
	require.Equal(t, NotEnough, row(t, compared(t, a, b, options()), "error_share", "mean").Answer)
}

// A hundred failures in one outage are one event, not a hundred.
func TestOneOutageIsOneEvent(t *testing.T) {
	outage := func(from, to float64) *Report {
		b := standard()
		b.noise = 2
		sb := b.sample()
		for i := range sb.requests {
			every := to-from < 300 || i%30 == 0
			if q := &sb.requests[i]; q.at >= from && q.at < to && every {
				q.failed = true
			}
		}
		r, err := compareSamples(standard().sample(), sb, options())
		require.NoError(t, err)
		return r
	}
	one, spread := row(t, outage(300, 320), "error_share", "mean"), row(t, outage(0, 600), "error_share", "mean")
	require.InDelta(t, 0.0333, *one.Change, 0.001)
	require.InDelta(t, 0.0333, *spread.Change, 0.001)
	require.Equal(t, NotEnough, one.Answer)
	require.Equal(t, Worse, spread.Answer)
}

func TestFewRequestsAreNotEnough(t *testing.T) {
	a, b := standard(), standard()
	a.n, b.n, b.noise = 900, 900, 2
	x := row(t, compared(t, a, b, options()), "ttft", "p99")
	require.Equal(t, NotEnough, x.Answer)
	require.Equal(t, "needs 1000 requests in each run", x.Note)
	require.Nil(t, x.Change)
	require.InDelta(t, 1, *x.B / *x.A, 0.3)
	o := options()
	o.BlockSeconds = 100
	_, err := compareSamples(a.sample(), b.sample(), o)
	require.ErrorContains(t, err, "blocks of 100 s in a phase of 600 s are 6, expected 8 to 100000")
	short := options()
	short.BlockSeconds = 1e-9
	_, err = compareSamples(standard().sample(), standard().sample(), short)
	require.ErrorContains(t, err, "blocks of 1e-09 s in a phase of 600 s are 6e+11, expected 8 to 100000")
}

func TestDifferentRowsAreNotPaired(t *testing.T) {
	a, b := standard(), standard()
	b.workload, b.noise = 2, 2
	sb := b.sample()
	for i := range sb.requests {
		sb.requests[i].row += 1_000_000
	}
	r, err := compareSamples(a.sample(), sb, options())
	require.NoError(t, err)
	require.Zero(t, r.PairedRows)
	require.Len(t, r.Rows, 4*3+3)

	same := a.sample()
	same.requests[7].row = 8 // twice: neither of the two is paired, nor is the missing row
	require.Len(t, match(same, a.sample()), 2998)
	late := a.sample()
	for i := range late.requests {
		late.requests[i].at += 30
	}
	require.Nil(t, match(a.sample(), late), "replayed at another time")
}

// Mutually independent A/A comparisons, paired and not: at most 5 % may claim a difference in any of their rows.
func TestFalseAlarms(t *testing.T) {
	const runs = 60
	for _, paired := range []bool{true, false} {
		alarms := 0
		for i := range uint64(runs) {
			a, b := standard(), standard()
			a.workload, a.noise, b.workload, b.noise = i, 2*i, i, 2*i+1
			a.own, b.own = 0.2, 0.2
			if !paired {
				b.workload += 1000
			}
			sa, sb := a.sample(), b.sample()
			if !paired {
				for k := range sb.requests {
					sb.requests[k].row += 1_000_000
				}
			}
			o := options()
			o.Seed = i
			r, err := compareSamples(sa, sb, o)
			require.NoError(t, err)
			require.Equal(t, paired, r.PairedRows > 0)
			if r.Answer == Better || r.Answer == Worse || r.Answer == Mixed {
				alarms++
			}
		}
		// With 5 %, more than 6 of 60 would be a chance of 4 %.
		require.LessOrEqual(t, alarms, 6, "paired: %v", paired)
		t.Logf("paired %v: %d false alarms in %d", paired, alarms, runs)
	}
}

// A slowdown of 10 % is found by the paired test in nearly every comparison of ten minutes.
func TestPower(t *testing.T) {
	const runs = 20
	found := 0
	for i := range uint64(runs) {
		a, b := standard(), standard()
		a.workload, a.noise, b.workload, b.noise, b.slower = i, 2*i, i, 2*i+1, 1.1
		if compared(t, a, b, options()).Answer == Worse {
			found++
		}
	}
	require.GreaterOrEqual(t, found, 18)
}

func write(t *testing.T, l load, change func(*results.Info)) *results.Run {
	t.Helper()
	dir := t.TempDir()
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	info := results.Info{
		Started: started, Workload: "trace.jsonl", Digests: map[string]string{"trace": "sha256:aa", "contract": "sha256:cc"},
		Seeds: map[string]uint64{"arrivals": 7}, Contract: carried("steady: 10m", 0.95),
		Versions: map[string]string{"k6": "v1"},
	}
	if change != nil {
		change(&info)
	}
	w, err := results.Create(dir, info, results.Options{})
	require.NoError(t, err)
	for _, q := range l.sample().requests {
		at := started.Add(time.Duration(q.at * 1e9))
		r := results.Request{Row: q.row, Phase: "steady", Due: at, Start: at, Outcome: results.OK}
		if q.failed {
			r.Outcome, r.ErrorType = results.Failed, "http_5xx"
		} else {
			r.TTFT, r.TPOT = results.Num(q.values[0]), results.Num(q.values[1])
			r.ITLP99, r.E2E = results.Num(q.values[2]), results.Num(q.values[3])
			require.NoError(t, w.RecordITL("steady", "", "", []float64{q.values[1], q.values[1]}))
		}
		require.NoError(t, w.Request(&r))
	}
	warm := results.Request{Row: -1, Phase: "warmup", Start: started, Outcome: results.OK, TTFT: results.Num(1e6)}
	require.NoError(t, w.Request(&warm))
	retry := results.Request{Row: 1, Attempt: 2, Phase: "steady", Start: started, Outcome: results.OK, TTFT: results.Num(1e6)}
	require.NoError(t, w.Request(&retry))
	for i := range 600 {
		n := int64(5)
		s := results.Sample{Time: started.Add(time.Duration(i) * time.Second), Phase: "steady", Completed: &n, CompletionTokens: &n}
		if l.cpu > 0 {
			s.Client = map[string]float64{"cpu": l.cpu}
		}
		require.NoError(t, w.Sample(s))
	}
	require.NoError(t, w.Close(started.Add(10*time.Minute), nil))
	run, err := results.Open(dir)
	require.NoError(t, err)
	return run
}

func TestResultsDirectories(t *testing.T) {
	a, b := standard(), standard()
	a.n, b.n = 1200, 1200
	b.noise, b.slower, b.errors = 2, 1.5, 0.03
	ra := write(t, a, nil)
	rb := write(t, b, func(info *results.Info) {
		info.Versions["k6"] = "v2"
		info.Decision = json.RawMessage(`{"change":"max_num_seqs"}`)
	})
	r, err := Compare(ra, rb, Options{Resamples: 200})
	require.NoError(t, err)
	require.Equal(t, Worse, r.Answer)
	require.Equal(t, 1200, r.PairedRows)
	x := row(t, r, "ttft", "p50")
	require.Equal(t, int64(1200), x.NA, "no warmup, no retries")
	require.InDelta(t, 1.5, *x.Change, 0.12)
	require.Equal(t, int64(1200), x.NB, "failed ones count as slower than any")
	require.Nil(t, row(t, r, "ttft", "p99").B)
	require.InDelta(t, 5, *row(t, r, "requests_per_second", "mean").A, 0)
	require.Equal(t, Same, row(t, r, "output_tokens_per_second", "mean").Answer)
	require.Len(t, r.PooledITL, 3)
	require.InDelta(t, 1.5, r.PooledITL[0].Ratio, 0.1)
	require.Equal(t, []string{"version of k6", "decision"}, []string{r.Differences[0].What, r.Differences[1].What})
	require.Empty(t, r.Warnings)
	text := r.Text()
	require.Contains(t, text, "B is worse\n")
	require.Regexp(t, `(?m)^ttft +p50 +[\d.]+ +[\d.]+ +\+[45]\d\.\d % +.* worse$`, text)
	require.Regexp(t, `(?m)^error_share +mean +0 +0\.0\d+ +\+[234]\.\d\d pp .* worse$`, text)
	require.Contains(t, r.Markdown(), "| ttft | p50 | ")
	require.NotContains(t, r.Markdown(), "\t")

	again, err := Compare(ra, rb, Options{Resamples: 200})
	require.NoError(t, err)
	require.Equal(t, r, again, "equal inputs give equal reports")
	_, err = Compare(ra, rb, Options{Phase: "recovery"})
	require.ErrorContains(t, err, `no requests of the phase "recovery"`)
}

func TestDifferentWorkloadsAreRefused(t *testing.T) {
	a := standard()
	a.n = 300
	ra := write(t, a, nil)
	rb := write(t, a, func(info *results.Info) {
		info.Digests = map[string]string{"trace": "sha256:bb", "contract": "sha256:dd", "script": "sha256:ee"}
		info.Seeds["arrivals"] = 8
		info.Contract = carried("steady: 5m", 0.99)
		info.Labels = []string{results.LabelClosedLoop}
	})
	_, err := Compare(ra, rb, Options{})
	var refused *DifferentWorkloadsError
	require.ErrorAs(t, err, &refused)
	var what []string
	for _, d := range refused.Differences {
		what = append(what, d.What)
	}
	require.Equal(t, []string{"digest of trace", "seed arrivals", "phases of the contract", "labels"}, what)
	require.ErrorContains(t, err, "digest of trace (A: sha256:aa, B: sha256:bb)")

	r, err := Compare(ra, rb, Options{Force: true, Resamples: 100})
	require.NoError(t, err)
	require.Len(t, r.Differences, 6, "the contract's digest and the script's are told, too")
	require.Contains(t, r.Warnings[len(r.Warnings)-1], "the workloads differ")
}

func TestOptionsAreChecked(t *testing.T) {
	err := Options{Margin: 2, Confidence: 0.2, Resamples: 5, ErrorMargin: -1, BlockSeconds: -1}.Validate()
	for _, text := range []string{"margin is 2", "confidence is 0.2", "resamples are 5", "error margin is -1", "block length is -1"} {
		require.ErrorContains(t, err, text)
	}
	require.NoError(t, Options{}.Validate())
}

// cached is a run of which a share of the prompt tokens came from the prefix cache; a share below 0 is one that nobody told.
func cached(t *testing.T, share float64, ideal *float64, tokenless bool) *results.Run {
	t.Helper()
	dir := t.TempDir()
	started := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	w, err := results.Create(dir, results.Info{Started: started, Workload: "w", IdealPrefixHitRatio: ideal}, results.Options{})
	require.NoError(t, err)
	for i := range 300 {
		at := started.Add(time.Duration(i) * 200 * time.Millisecond)
		r := results.Request{
			Row: int64(i), Phase: "steady", Due: at, Start: at, Outcome: results.OK, Prompt: results.IntOf(1000),
			TTFT: results.Num(100 + float64(i%7)), TPOT: results.Num(10), ITLP99: results.Num(12), E2E: results.Num(500),
		}
		if share >= 0 {
			r.Cached = results.IntOf(int64(math.Round(1000 * share)))
		}
		require.NoError(t, w.Request(&r))
	}
	for i := range 70 {
		n, ended := int64(5), int64(500)
		s := results.Sample{Time: started.Add(time.Duration(i) * time.Second), Phase: "steady", Completed: &n, CompletionTokens: &ended}
		if i%10 == 4 {
			s.Completed, s.CompletionTokens = new(int64), nil // a second in which nothing completed
		}
		if tokenless && i == 7 {
			s.CompletionTokens = nil // five that nobody counted
		}
		if i >= 60 {
			*s.Completed = 100 // the drain
		}
		require.NoError(t, w.Sample(s))
	}
	require.NoError(t, w.Close(started.Add(70*time.Second), nil))
	run, err := results.Open(dir)
	require.NoError(t, err)
	return run
}

// Of two equal runs the second one is served by what the first one left in the prefix cache.
func TestAWarmPrefixCacheIsAnotherWorkload(t *testing.T) {
	ideal := func(v float64) *float64 { return &v }
	o := Options{Resamples: 100}
	for name, c := range map[string]struct {
		a, b           float64
		ideal          *float64
		refusedA, want string // want is the other's share, or the warning
	}{
		"cold and warm":             {0, 0.975, ideal(0.01), "0 %", "96.5 %"},
		"warm and cold":             {0.975, 0.01, ideal(0.01), "96.5 %", "0 %"},
		"nobody told of one":        {-1, 0.975, ideal(0), "not measured", "97.5 %"},
		"both warm, not alike":      {0.4, 0.5, ideal(0.1), "30 %", "40 %"},
		"both warm, alike":          {0.41, 0.4, ideal(0.1), "", "held prompts from before both runs (A: 31 %, B: 30 % of the prompt tokens)"},
		"a cache that was put on":   {0, 0.5, ideal(0.5), "", ""},
		"within what counting does": {0, 0.02, ideal(0), "", ""},
		"the reuse is not known":    {0, 0.4, nil, "", "of the prompt tokens 0 % of A and 40 % of B came from the prefix cache"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := cached(t, c.a, c.ideal, false), cached(t, c.b, c.ideal, false)
			r, err := Compare(a, b, o)
			if c.refusedA == "" {
				require.NoError(t, err)
				require.Empty(t, r.Differences)
				if c.want == "" {
					require.Empty(t, r.Warnings)
				} else {
					require.Len(t, r.Warnings, 1)
					require.Contains(t, r.Warnings[0], c.want)
				}
				return
			}
			want := Difference{What: "prefix cache before the run", A: c.refusedA, B: c.want, Workload: true}
			var different *DifferentWorkloadsError
			require.ErrorAs(t, err, &different)
			require.Equal(t, []Difference{want}, different.Differences)
			forced := o
			forced.Force = true
			r, err = Compare(a, b, forced)
			require.NoError(t, err)
			require.Equal(t, []Difference{want}, r.Differences)
			require.Contains(t, r.Warnings[len(r.Warnings)-1], "the workloads differ")
			require.Contains(t, r.Text(), "the workload differs: prefix cache before the run (A: "+c.refusedA+", B: "+c.want+")")
		})
	}
}

// A second in which nothing completed has no tokens, and what completes after the last arrival is no rate of the phase.
func TestRatesAreOfThePhaseAlone(t *testing.T) {
	a, b := cached(t, -1, nil, false), cached(t, -1, nil, false)
	r, err := Compare(a, b, Options{Resamples: 100})
	require.NoError(t, err)
	x := row(t, r, "output_tokens_per_second", "mean")
	require.Equal(t, int64(59), x.NA, "0 to 59.8 s")
	require.InDelta(t, 500*53.0/59, *x.A, 1e-9)
	require.InDelta(t, 5*53.0/59, *row(t, r, "requests_per_second", "mean").A, 1e-9)
	r, err = Compare(a, cached(t, -1, nil, true), Options{Resamples: 100})
	require.NoError(t, err)
	require.Equal(t, "not measured", row(t, r, "output_tokens_per_second", "mean").Note)
}

// busy makes a load generator's verdict of a run, stored beside it.
func busy(t *testing.T, run *results.Run, status verdict.Status) {
	t.Helper()
	cpu := 0.99
	judged := verdict.Result{Schema: verdict.Schema, Verdict: status, Confidence: 0.95, Criteria: []verdict.Criterion{
		{Name: "client_headroom.cpu", Section: "client_headroom", Unit: "ratio", Limit: "<= 70%", Measured: &cpu, N: 60, Verdict: verdict.Fail},
	}}
	require.NoError(t, judged.Write(run.Dir))
}

// A run whose load generator was the bottleneck says nothing about the service: no answer stands on it.
func TestAnInvalidSideGivesNoAnswer(t *testing.T) {
	a, b := standard(), standard()
	a.n, b.n = 300, 300
	b.noise, b.slower = 2, 1.5
	o := Options{Resamples: 200}
	const broken = "client_headroom.cpu (measured 99%, limit <= 70%)"
	compared := func(onA, onB verdict.Status, o Options) *Report {
		ra, rb := write(t, a, nil), write(t, b, nil)
		for run, status := range map[*results.Run]verdict.Status{ra: onA, rb: onB} {
			if status != "" {
				busy(t, run, status)
			}
		}
		r, err := Compare(ra, rb, o)
		require.NoError(t, err)
		for i := range r.Invalid { // a directory of its own each time
			require.Equal(t, map[string]string{"A": ra.Dir, "B": rb.Dir}[r.Invalid[i].Side], r.Invalid[i].Dir)
			r.Invalid[i].Dir = ""
		}
		return r
	}
	without := compared("", "", o)
	require.Equal(t, Worse, without.Answer)
	require.Empty(t, without.Invalid)
	require.Empty(t, without.Warnings)

	for _, c := range []struct {
		a, b  verdict.Status
		sides []string
		head  string
	}{
		{verdict.Invalid, "", []string{"A"}, "since the verdict on A is INVALID\n"},
		{"", verdict.Invalid, []string{"B"}, "since the verdict on B is INVALID\n"},
		{verdict.Invalid, verdict.Invalid, []string{"A", "B"}, "since the verdicts on A and B are INVALID\n"},
	} {
		forced := o
		forced.Force = true
		for _, o := range []Options{o, forced} {
			r := compared(c.a, c.b, o)
			require.Equal(t, NotEnough, r.Answer)
			require.Equal(t, without.Rows, r.Rows, "what was measured is shown all the same")
			require.Len(t, r.Invalid, len(c.sides))
			for i, side := range c.sides {
				require.Equal(t, InvalidSide{Side: side, Broken: broken}, r.Invalid[i])
				require.Contains(t, r.Warnings[i], side+" (")
				require.Contains(t, r.Warnings[i], ") is INVALID: the load generator was the bottleneck: "+broken)
			}
			require.Contains(t, r.Text(), "B is neither shown to differ nor to be the same: not enough evidence, "+c.head)
			require.Contains(t, r.Markdown(), "not enough evidence, "+c.head[:len(c.head)-1]+"**\n")
			require.Contains(t, r.Markdown(), "warning: "+r.Warnings[0])
		}
	}

	// It comes before all that is to be said besides.
	ra, rb := write(t, a, nil), write(t, b, func(info *results.Info) {
		info.Workload, info.Aborted = "other.jsonl", &results.Aborted{Rule: "abort.ttft_p99"}
	})
	busy(t, rb, verdict.Invalid)
	r, err := Compare(ra, rb, Options{Resamples: 200, Force: true})
	require.NoError(t, err)
	require.Equal(t, NotEnough, r.Answer)
	require.Len(t, r.Warnings, 3)
	require.Contains(t, r.Warnings[0], "is INVALID")
	require.Contains(t, r.Warnings[1], "was aborted")
	require.Contains(t, r.Warnings[2], "the workloads differ")

	// FAIL goes before INVALID in a verdict, and a service that failed has failed: the answer stands, with a warning.
	r = compared("", verdict.Fail, o)
	require.Equal(t, Worse, r.Answer)
	require.Empty(t, r.Invalid)
	require.Len(t, r.Warnings, 1)
	require.Contains(t, r.Warnings[0], "the load generator was at its limit: "+broken)
}

// A run that was not judged is judged here, where it carries a contract.
func TestASideIsJudgedOnTheSpot(t *testing.T) {
	a := standard()
	a.n = 300
	agreed, err := contract.Load("slo.yaml", []byte("capacity_gate: {ttft_p95: \"<= 100s\"}\n"+
		"client_headroom: {cpu: \"<= 70%\", schedule_error: off}\nphases: {steady: 10m}\n"), os.LookupEnv)
	require.NoError(t, err)
	text, err := json.Marshal(agreed)
	require.NoError(t, err)
	ra := write(t, a, func(info *results.Info) { info.Contract = text })
	b := a
	b.cpu = 0.99
	rb := write(t, b, func(info *results.Info) { info.Contract = text })
	r, err := Compare(ra, rb, Options{Resamples: 100})
	require.NoError(t, err)
	require.Equal(t, NotEnough, r.Answer)
	require.Len(t, r.Invalid, 1)
	require.Equal(t, InvalidSide{Side: "B", Dir: rb.Dir, Broken: "client_headroom.cpu (measured 99%, limit <= 70%)"}, r.Invalid[0])
	require.NoFileExists(t, filepath.Join(rb.Dir, results.VerdictFile), "a comparison only reads")

	require.NoError(t, results.WriteFile(filepath.Join(ra.Dir, results.VerdictFile), []byte("{")))
	_, err = Compare(ra, rb, Options{Resamples: 100})
	require.ErrorContains(t, err, results.VerdictFile)
}

// carried is a contract as a run carries it.
func carried(phases string, confidence float64) json.RawMessage {
	agreed, err := contract.Load("slo.yaml", fmt.Appendf(nil, "capacity_gate: {success_rate: \">= 50%%\"}\nphases: {%s}\nconfidence: %g\n", phases, confidence), nil)
	if err != nil {
		panic(err) // of the test itself
	}
	text, err := json.Marshal(agreed)
	if err != nil {
		panic(err)
	}
	return text
}
