package workload

import (
	"errors"
	"math"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
	"pgregory.net/rapid"

	"github.com/safeqps/xk6-safeqps/trace/format"
)

// alpha is the error rate of each statistical test here. Seeds are fixed, so a test that passes keeps passing; alpha
// says how far the drawing may be from the law.
const alpha = 1e-4

// kolmogorov tests draws against a distribution function: Q(√n·D) is the asymptotic p-value (Kolmogorov 1933),
// conservative for the whole numbers that we draw, whose steps are at most 1/1000 of the range here.
func kolmogorov(t *testing.T, draws []float64, cdf func(float64) float64) {
	t.Helper()
	sort.Float64s(draws)
	n, d := float64(len(draws)), 0.0
	for i, x := range draws {
		if i+1 < len(draws) && draws[i+1] == x {
			continue
		}
		// Values are rounded to the nearest whole number: up to x the mass is that below x+½.
		d = max(d, math.Abs(float64(i+1)/n-cdf(x+0.5)))
	}
	p, lambda := 0.0, math.Sqrt(n)*d
	for k := 1.0; k < 100; k++ {
		p += 2 * math.Pow(-1, k-1) * math.Exp(-2*k*k*lambda*lambda)
	}
	require.Greater(t, p, alpha, "D = %g over %g draws", d, n)
}

func sampler(t *testing.T, seed uint64, classes ...Class) *Sampler {
	t.Helper()
	s, err := NewSampler(Mix{Classes: classes}, seed)
	require.NoError(t, err)
	return s
}

func draws(s *Sampler, n int) (inputs, outputs []float64) {
	for row := range n {
		l := s.At(row)
		inputs, outputs = append(inputs, float64(l.Input)), append(outputs, float64(l.Output))
	}
	return inputs, outputs
}

func truncated(cdf func(float64) float64, low, high float64) func(float64) float64 {
	from, to := cdf(low-0.5), cdf(high+0.5)
	return func(x float64) float64 { return (cdf(x) - from) / (to - from) }
}

func TestDistributionsFollowTheirLaw(t *testing.T) {
	ten := Distribution{Kind: Fixed, Value: 10}
	lognormal := distuv.LogNormal{Mu: math.Log(2000), Sigma: 0.8}
	for _, c := range []struct {
		name string
		d    Distribution
		cdf  func(float64) float64
	}{
		{"uniform", Distribution{Kind: Uniform, Min: 100, Max: 5099}, func(x float64) float64 { return (x - 99.5) / 5000 }},
		{"normal", Distribution{Kind: Normal, Mean: 5000, StdDev: 700}, distuv.Normal{Mu: 5000, Sigma: 700}.CDF},
		{"lognormal by median", Distribution{Kind: Lognormal, Median: 2000, Sigma: 0.8}, lognormal.CDF},
		{"lognormal by mean", Distribution{Kind: Lognormal, Mean: 2000 * math.Exp(0.32), Sigma: 0.8}, lognormal.CDF},
		{"lognormal cut", Distribution{Kind: Lognormal, Median: 2000, Sigma: 0.8, Min: 1000, Max: 3000}, truncated(lognormal.CDF, 1000, 3000)},
		{"exponential", Distribution{Kind: Exponential, Mean: 3000}, truncated(distuv.Exponential{Rate: 1.0 / 3000}.CDF, 1, MaxTokens)},
		{"normal far out", Distribution{Kind: Normal, Mean: 100, StdDev: 1000, Min: 3000}, truncated(distuv.Normal{Mu: 100, Sigma: 1000}.CDF, 3000, MaxTokens)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := sampler(t, 11, Class{Name: "c", Share: 1, Input: c.d, Output: ten})
			inputs, outputs := draws(s, 20_000)
			for i, x := range inputs {
				require.Equal(t, 10.0, outputs[i])
				require.GreaterOrEqual(t, x, float64(max(c.d.Min, 1)))
				if c.d.Max > 0 {
					require.LessOrEqual(t, x, float64(c.d.Max))
				}
			}
			kolmogorov(t, inputs, c.cdf)

			s = sampler(t, 12, Class{Name: "c", Share: 1, Input: ten, Output: c.d})
			_, outputs = draws(s, 20_000)
			kolmogorov(t, outputs, c.cdf)
		})
	}
}

func TestUniformReachesBothEnds(t *testing.T) {
	s := sampler(t, 3, Class{Name: "c", Share: 1, Input: Distribution{Kind: Uniform, Min: 1, Max: 3}, Output: Distribution{Kind: Uniform, Min: 7, Max: 7}})
	counts := map[int]int{}
	for row := range 30_000 {
		l := s.At(row)
		counts[l.Input]++
		require.Equal(t, 7, l.Output)
	}
	require.Len(t, counts, 3)
	chi := 0.0
	for v := 1; v <= 3; v++ {
		d := float64(counts[v]) - 10_000
		chi += d * d / 10_000
	}
	require.Greater(t, distuv.ChiSquared{K: 2}.Survival(chi), alpha)
}

func TestSharesAreKept(t *testing.T) {
	one := Distribution{Kind: Fixed, Value: 1}
	classes := []Class{
		{Name: "a", Share: 0.6, Input: one, Output: one},
		{Name: "b", Share: 0.3, Input: one, Output: one},
		{Name: "c", Share: 0.1, Input: one, Output: one},
	}
	const n = 100_000
	s := sampler(t, 5, classes...)
	counts := map[string]int{}
	for row := range n {
		counts[s.At(row).Class]++
	}
	chi := 0.0
	for _, c := range classes {
		d := float64(counts[c.Name]) - n*c.Share
		chi += d * d / (n * c.Share)
	}
	require.Greater(t, distuv.ChiSquared{K: 2}.Survival(chi), alpha)
}

// Class, input and output come from independent streams, and so do consecutive rows.
func TestStreamsAreIndependent(t *testing.T) {
	u := Distribution{Kind: Uniform, Min: 1, Max: 1_000_000}
	s := sampler(t, 9, Class{Name: "a", Share: 0.5, Input: u, Output: u}, Class{Name: "b", Share: 0.5, Input: u, Output: u})
	const n = 50_000
	inputs, outputs := draws(s, n)
	class := make([]float64, n)
	for row := range n {
		if s.At(row).Class == "b" {
			class[row] = 1
		}
	}
	// Under independence a sample correlation has a standard deviation of 1/√n: this is 4.4 of them, α = 1e-5.
	limit := 4.4 / math.Sqrt(n)
	require.InDelta(t, 0, stat.Correlation(inputs, outputs, nil), limit)
	require.InDelta(t, 0, stat.Correlation(inputs, class, nil), limit)
	require.InDelta(t, 0, stat.Correlation(outputs, class, nil), limit)
	require.InDelta(t, 0, stat.Correlation(inputs[1:], inputs[:n-1], nil), limit)
	other, _ := draws(sampler(t, 10, Class{Name: "a", Share: 1, Input: u, Output: u}), n)
	require.InDelta(t, 0, stat.Correlation(inputs, other, nil), limit, "neighbouring seeds")
}

func TestCopulaCorrelation(t *testing.T) {
	normal := Distribution{Kind: Normal, Mean: 50_000, StdDev: 1000}
	for _, rho := range []float64{-1, -0.5, 0.7, 1} {
		s := sampler(t, 2, Class{Name: "c", Share: 1, Input: normal, Output: normal, Correlation: rho})
		inputs, outputs := draws(s, 20_000)
		// For normal margins the correlation of the copula is that of the values; its standard error is below 1/√n.
		require.InDelta(t, rho, stat.Correlation(inputs, outputs, nil), 4.4/math.Sqrt(20_000))
		kolmogorov(t, outputs, distuv.Normal{Mu: 50_000, Sigma: 1000}.CDF)
	}
}

func TestEmpiricalKeepsRows(t *testing.T) {
	trace := &format.Trace{Name: "t"}
	for i := range int32(50) {
		trace.Rows = append(trace.Rows, format.Row{InputTokens: 100 + i, OutputTokens: 1000 - 7*i})
	}
	trace.Rows = append(trace.Rows, format.Row{InputTokens: format.Unknown, OutputTokens: 5}, format.Row{InputTokens: 5})
	pairs, leftOut, err := PairsOf(trace)
	require.NoError(t, err)
	require.Equal(t, 2, leftOut)
	require.Len(t, pairs, 50)
	s := sampler(t, 4, Class{Name: "prod", Share: 1, Pairs: pairs})
	counts := map[Pair]int{}
	const n = 50_000
	for row := range n {
		l := s.At(row)
		require.Equal(t, "prod", l.Class)
		require.Equal(t, 1000-7*(l.Input-100), l.Output, "input and output of one row")
		counts[Pair{l.Input, l.Output}]++
	}
	chi := 0.0
	for _, p := range pairs {
		d := float64(counts[p]) - n/50
		chi += d * d / (n / 50)
	}
	require.Greater(t, distuv.ChiSquared{K: 49}.Survival(chi), alpha)

	_, _, err = PairsOf(&format.Trace{Name: "t", Rows: make([]format.Row, 3)})
	require.EqualError(t, err, "trace t: none of 3 rows has both an input and an output length")
}

func TestSamplerGolden(t *testing.T) {
	m, err := ParseMix("chat", nil)
	require.NoError(t, err)
	s, err := NewSampler(m, 1)
	require.NoError(t, err)
	require.Equal(t, goldenLengths, []Lengths{s.At(0), s.At(1), s.At(2), s.At(1_000_000)})
	require.Equal(t, s.At(2), s.At(2))
}

func TestPresetClassesAreTruthful(t *testing.T) {
	for name, input := range map[string][2]int{"short": {16, 511}, "typical": {512, 4095}, "long": {4096, 16383}, "extreme": {16384, 131071}} {
		c, ok := PresetClass(name)
		require.True(t, ok)
		c.Share = 1
		s := sampler(t, 1, c)
		inputs, _ := draws(s, 2000)
		sort.Float64s(inputs)
		require.GreaterOrEqual(t, inputs[0], float64(input[0]))
		require.LessOrEqual(t, inputs[len(inputs)-1], float64(input[1]))
	}
	_, ok := PresetClass("other")
	require.False(t, ok)
	for name := range presetMixes {
		_, err := ParseMix(name, nil)
		require.NoError(t, err, name)
	}
}

func TestParseMix(t *testing.T) {
	trace := &format.Trace{Name: "prod.jsonl", Rows: []format.Row{{InputTokens: 3, OutputTokens: 4}}}
	load := func(path string) (*format.Trace, error) {
		if path != "prod.jsonl" {
			return nil, errors.New("no such file")
		}
		return trace, nil
	}
	long, _ := PresetClass("long")
	long.Share = 0.1
	want := Mix{Classes: []Class{
		long,
		{Name: "mine", Share: 0.2, Input: Distribution{Kind: Uniform, Min: 5, Max: 9}, Output: Distribution{Kind: Normal, Mean: 40, StdDev: 8}, Correlation: 0.5},
		{Name: "prod", Share: 0.4, Pairs: []Pair{{3, 4}}},
		{Name: "short", Share: 0.3, Input: Distribution{Kind: Fixed, Value: 500}, Output: Distribution{Kind: Lognormal, Mean: 120, Sigma: 1, Max: 1000}},
	}}
	got, err := ParseMix(map[string]any{
		"short": map[string]any{"share": 0.3, "input": int64(500), "output": map[string]any{"dist": "lognormal", "mean": 120, "sigma": 1.0, "max": 1000.0}},
		"long":  0.1,
		"mine": map[string]any{
			"share": 0.2, "input": map[string]any{"dist": "uniform", "min": 5, "max": uint64(9)},
			"output": map[string]any{"dist": "normal", "mean": 40, "stddev": 8}, "correlation": 0.5,
		},
		"prod": map[string]any{"share": 0.4, "from": "prod.jsonl"},
	}, load)
	require.NoError(t, err)
	require.Equal(t, want, got)

	for _, text := range []string{
		`{"prod": {"pairs": [[3, 4]]}}`,
		"prod:\n  pairs: [[3, 4]]\n",
		`{prod: {share: 1, from: prod.jsonl}}`,
	} {
		got, err = ParseMix(text, load)
		require.NoError(t, err)
		require.Equal(t, Mix{Classes: []Class{{Name: "prod", Share: 1, Pairs: []Pair{{3, 4}}}}}, got)
	}

	got, err = ParseMix("short=0.9, b=0.1@8000/300", nil)
	require.NoError(t, err)
	require.Equal(t, Class{Name: "b", Share: 0.1, Input: Distribution{Kind: Fixed, Value: 8000}, Output: Distribution{Kind: Fixed, Value: 300}}, got.Classes[0])
	require.Equal(t, "short", got.Classes[1].Name)

	// Three thirds are one.
	_, err = ParseMix("short=0.3333,typical=0.3333,long=0.3333", nil)
	require.NoError(t, err)
}

func TestParseMixErrors(t *testing.T) {
	class := func(m map[string]any) map[string]any { return map[string]any{"long": m} }
	for _, c := range []struct {
		name string
		in   any
		want string
	}{
		{"map", [][2]any{{"a", 1}}, "mix: expected an object of classes or a string, got a Map"},
		{"function", map[string]any{"long": func() {}}, "mix.long: expected a share or an object {share, input, output}, got a function"},
		{"within", map[string]any{"long": []any{func() {}}}, "mix.long: expected a share or an object {share, input, output}, got an array"},
		{"bytes", []byte{1}, "mix: expected an object of classes or a string, got a Uint8Array"},
		{"type", 3.0, "mix: expected an object of classes or a string, got 3"},
		{"none", map[string]any{}, "mix: expected at least one class"},
		{"shares", map[string]any{"short": 0.5, "long": 0.4}, "mix: expected shares that add up to 1, got 0.9"},
		{"share", map[string]any{"short": 1.5}, "mix.short.share: expected above 0 and at most 1, got 1.5"},
		{"no share", map[string]any{"short": 0.5, "long": map[string]any{}}, "mix.long.share: expected the class's share"},
		{"share type", class(map[string]any{"share": "60%"}), `mix.long.share: expected a number, got "60%"`},
		{"class type", map[string]any{"long": "x"}, `mix.long: expected a share or an object {share, input, output}, got "x"`},
		{"unknown key", class(map[string]any{"inputs": 5}), "mix.long.inputs: unknown key: expected one of correlation, from, input, output, pairs, share"},
		{"no lengths", map[string]any{"mine": 1.0}, "mix.mine.input: expected a number of tokens or a distribution"},
		{"fraction", class(map[string]any{"input": 1.5}), "mix.long.input: expected a whole number from 1 to 16777216, got 1.5"},
		{"zero", class(map[string]any{"output": 0}), "mix.long.output: expected a whole number from 1 to 16777216, got 0"},
		{"dist", class(map[string]any{"input": map[string]any{"dist": "gauss"}}), `mix.long.input.dist: expected one of fixed, uniform, normal, lognormal, exponential, got "gauss"`},
		{"sigma", class(map[string]any{"input": map[string]any{"dist": "lognormal", "mean": 5}}), "mix.long.input.sigma: expected a number above zero for lognormal, got 0"},
		{"sigma type", class(map[string]any{"input": map[string]any{"dist": "lognormal", "mean": 5, "sigma": "a"}}), `mix.long.input.sigma: expected a number, got "a"`},
		{"both", class(map[string]any{"input": map[string]any{"dist": "lognormal", "mean": 5, "median": 5, "sigma": 1}}), "mix.long.input: expected mean or median, got both"},
		{"stray", class(map[string]any{"input": map[string]any{"dist": "exponential", "mean": 5, "sigma": 1}}), "mix.long.input.sigma: unknown key: expected one of dist, max, mean, min"},
		{"bounds", class(map[string]any{"input": map[string]any{"dist": "exponential", "mean": 5, "min": 9, "max": 3}}), "mix.long.input: expected 1 ≤ min ≤ max ≤ 16777216, got min 9 and max 3"},
		{"min", class(map[string]any{"input": map[string]any{"dist": "exponential", "mean": 5, "min": -1}}), "mix.long.input.min: expected a whole number from 1 to 16777216, got -1"},
		{"uniform", class(map[string]any{"input": map[string]any{"dist": "uniform", "min": 5}}), "mix.long.input: a uniform distribution needs min and max"},
		{"hopeless", class(map[string]any{"output": map[string]any{"dist": "normal", "mean": 100, "stddev": 10, "min": 1000}}), "mix.long.output: less than one in a million of the distribution lies from min 1000"},
		{"correlation", class(map[string]any{"correlation": 2}), "mix.long.correlation: expected -1 to 1, got 2"},
		{"from and input", class(map[string]any{"from": "a", "input": 3}), "mix.long: expected one of from, pairs, or input and output"},
		{"from", class(map[string]any{"from": "a"}), `mix.long.from: no files can be read here, got "a"`},
		{"pairs", class(map[string]any{"pairs": []any{[]any{1.0}}}), "mix.long.pairs[0]: expected [input, output], got [1]"},
		{"pair", class(map[string]any{"pairs": []any{[]any{1.0, 0.5}}}), "mix.long.pairs[0]: expected two whole numbers from 1 to 16777216, got [1,0.5]"},
		{"text", "short", `got "short": no name and share`},
		{"text number", "short=a", "share: not a number"},
		{"text twice", "short=0.5,short=0.5", `the class "short" stands there twice`},
		{"text yaml", "{short", "mix: expected an object of classes in JSON or YAML"},
		{"nan", map[string]any{"short": math.NaN()}, "mix.short: expected a share"},
	} {
		_, err := ParseMix(c.in, nil)
		require.ErrorContains(t, err, c.want, c.name)
	}
}

func FuzzParseMix(f *testing.F) {
	for _, text := range []string{"chat", "short=0.5,long=0.5@1/2", "{short: {share: 1}}", "a:\n  input: 3\n  output: {dist: normal, mean: 3, stddev: 2}"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMix(text, nil)
		if err != nil {
			return
		}
		s, err := NewSampler(m, 1)
		if err != nil {
			t.Fatalf("a parsed mix cannot be drawn from: %v", err)
		}
		for row := range 20 {
			if l := s.At(row); l.Input < 1 || l.Output < 1 || l.Input > MaxTokens || l.Output > MaxTokens {
				t.Fatalf("row %d: %+v", row, l)
			}
		}
	})
}

func TestDrawsStayWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.IntRange(1, 5000).Draw(t, "min")
		d := Distribution{
			Kind: rapid.SampledFrom([]Kind{Uniform, Normal, Lognormal, Exponential}).Draw(t, "kind"),
			Mean: rapid.Float64Range(1, 10_000).Draw(t, "mean"), Min: low, Max: low + rapid.IntRange(0, 5000).Draw(t, "width"),
		}
		d.StdDev, d.Sigma = d.Mean/2, 1.5
		q, err := d.prepare("d")
		if err != nil {
			return
		}
		before := 0
		for _, u := range []float64{1e-16, 1e-9, 0.01, 0.3, 0.5, 0.9, 1 - 1e-9, 1 - 1e-16} {
			x := q.at(u)
			if x < d.Min || x > d.Max || x < before {
				t.Fatalf("u %g gives %d, after %d, in %+v", u, x, before, d)
			}
			before = x
		}
	})
}
