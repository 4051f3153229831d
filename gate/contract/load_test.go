package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func loadFile(t *testing.T, path string, env func(string) (string, bool)) *Contract {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	c, err := Load(path, data, env)
	require.NoError(t, err)
	return c
}

func mustLoad(t *testing.T, text string) *Contract {
	t.Helper()
	c, err := Load("slo.yaml", []byte(text), nil)
	require.NoError(t, err)
	return c
}

func TestMinimalFormIsValidAsItStands(t *testing.T) {
	c := loadFile(t, "testdata/minimal.yaml", nil)
	abs := func(x float64) Limit { return Limit{Absolute: &x} }
	quantile := func(q float64) Stat { return Stat{Kind: StatQuantile, Quantile: q} }
	want := []Criterion{
		{Name: "success_rate", Metric: "success_rate", Stat: Stat{Kind: StatRate}, Op: OpGreaterEqual, Limit: abs(0.995), Unit: UnitRatio, Text: ">= 0.995", Pos: Pos{2, 17}},
		{Name: "ttft_p95", Metric: "ttft", Stat: quantile(0.95), Op: OpLessEqual, Limit: abs(800), Unit: UnitMilliseconds, Text: "<= 800ms", Pos: Pos{3, 13}},
		{Name: "ttft_p99", Metric: "ttft", Stat: quantile(0.99), Op: OpLessEqual, Limit: abs(2000), Unit: UnitMilliseconds, Text: "<= 2s", Pos: Pos{4, 13}},
		{Name: "itl_p99", Metric: "itl", Stat: quantile(0.99), Op: OpLessEqual, Limit: abs(80), Unit: UnitMilliseconds, Text: "<= 80ms", Pos: Pos{5, 12}},
		{Name: "e2e_p99", Metric: "e2e", Stat: quantile(0.99), Op: OpLessEqual, Limit: abs(30000), Unit: UnitMilliseconds, Text: "<= 30s", Pos: Pos{6, 12}},
		{Name: "queue_growth", Metric: "queue_growth", Stat: Stat{Kind: StatState}, Op: OpEqual, Limit: abs(0), Unit: UnitState, Text: "no_sustained_growth", Pos: Pos{7, 17}},
	}
	for i := range want {
		want[i].Section, want[i].Phase, want[i].Raw = SectionGate, PhaseSteady, want[i].Text
	}
	require.Equal(t, want, c.Gate)
	require.Equal(t, 0.95, c.Confidence)
	require.Equal(t, Phases{Duration(2 * time.Minute), Duration(10 * time.Minute), Duration(2 * time.Minute), true}, c.Phases)
	require.Empty(t, c.Recovery)
	require.Empty(t, c.Abort)
	require.Nil(t, c.Server)
	require.Nil(t, c.RequestSLO)
}

func TestHeadroomDefaults(t *testing.T) {
	summary := func(text string) []string {
		var out []string
		for _, c := range mustLoad(t, text).ClientHeadroom {
			limit, _ := c.Limit.Value()
			out = append(out, fmt.Sprintf("%s %s%g %s%s %g %v", c.Name, c.Op, limit, c.Unit, c.Stat.Kind, c.Stat.Quantile, c.Default))
		}
		return out
	}
	cpu := "client_headroom.cpu <=0.8 ratioquantile 0.95 true"
	memory := "client_headroom.memory <=0.8 ratiomax 0 true"
	files := "client_headroom.open_files <=0.8 ratiomax 0 true"
	timer := "client_headroom.timer_delay_p99 <=10 msquantile 0.99 true"
	schedule := "client_headroom.schedule_error <=0.02 ratiovalue 0 true"
	dropped := "client_headroom.dropped ==0 countcount 0 true"
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"none given": {
			"capacity_gate: {ttft_p95: '<= 1s'}",
			[]string{cpu, memory, files, timer, schedule, dropped},
		},
		"one replaced, others stay": {
			"capacity_gate: {ttft_p95: '<= 1s'}\nclient_headroom: {cpu: '<= 70%'}",
			[]string{"client_headroom.cpu <=0.7 ratioquantile 0.95 false", memory, files, timer, schedule, dropped},
		},
		"another statistic of the same metric replaces": {
			"capacity_gate: {ttft_p95: '<= 1s'}\nclient_headroom: {memory_p99: '< 0.5', timer_delay_max: '<= 20ms'}",
			[]string{
				"client_headroom.memory_p99 <0.5 ratioquantile 0.99 false",
				"client_headroom.timer_delay_max <=20 msmax 0 false", cpu, files, schedule, dropped,
			},
		},
		"off": {
			"capacity_gate: {ttft_p95: '<= 1s'}\nclient_headroom: {open_files: off, schedule_error: off}",
			[]string{cpu, memory, timer, dropped},
		},
		"a gate on dropped arrivals replaces the default": {
			"capacity_gate: {dropped: '<= 1%'}",
			[]string{cpu, memory, files, timer, schedule},
		},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, summary(test.text)) })
	}
	require.Len(t, headroomDefaults, 6, "every default above was read")
}

func TestConditionValues(t *testing.T) {
	type want struct {
		name     string
		op       Op
		absolute float64
		relative *Relative
		unit     Unit
	}
	rel := func(factor, offset float64) *Relative { return &Relative{factor, offset} }
	for line, w := range map[string]want{
		"ttft_p95: '<= 800ms'":                        {"ttft_p95", OpLessEqual, 800, nil, UnitMilliseconds},
		"ttft_p95: <= 800ms":                          {"ttft_p95", OpLessEqual, 800, nil, UnitMilliseconds},
		"ttft_p95: '<2s'":                             {"ttft_p95", OpLess, 2000, nil, UnitMilliseconds},
		"ttft_p95: '<= 1.5 s'":                        {"ttft_p95", OpLessEqual, 1500, nil, UnitMilliseconds},
		"ttft_p95: '<= 500us'":                        {"ttft_p95", OpLessEqual, 0.5, nil, UnitMilliseconds},
		"ttft_p95: '<= 500µs'":                        {"ttft_p95", OpLessEqual, 0.5, nil, UnitMilliseconds},
		"e2e_max: '<= 2m'":                            {"e2e_max", OpLessEqual, 120000, nil, UnitMilliseconds},
		"e2e_max: '<= 1m30s'":                         {"e2e_max", OpLessEqual, 90000, nil, UnitMilliseconds},
		"ttft_p99.9: '<= 3s'":                         {"ttft_p99.9", OpLessEqual, 3000, nil, UnitMilliseconds},
		"ttft_p99_9: '<= 3s'":                         {"ttft_p99.9", OpLessEqual, 3000, nil, UnitMilliseconds},
		"ttft_med: '<= 3s'":                           {"ttft_p50", OpLessEqual, 3000, nil, UnitMilliseconds},
		"ttft_text_avg: '<= 3s'":                      {"ttft_text_avg", OpLessEqual, 3000, nil, UnitMilliseconds},
		"schedule_delay_p99: '< 5ms'":                 {"schedule_delay_p99", OpLess, 5, nil, UnitMilliseconds},
		"success_rate: '>= 0.995'":                    {"success_rate", OpGreaterEqual, 0.995, nil, UnitRatio},
		"success_rate: '>= 99.5%'":                    {"success_rate", OpGreaterEqual, 0.995, nil, UnitRatio},
		"success_rate: '== 100%'":                     {"success_rate", OpEqual, 1, nil, UnitRatio},
		"error_rate: '<= 0.7 %'":                      {"error_rate", OpLessEqual, 0.007, nil, UnitRatio},
		"http_5xx: '== 0'":                            {"http_5xx", OpEqual, 0, nil, UnitRatio},
		"goodput: '> 95%'":                            {"goodput", OpGreater, 0.95, nil, UnitRatio},
		"output_tps_p5: '>= 20'":                      {"output_tps_p5", OpGreaterEqual, 20, nil, UnitTokensPerSecond},
		"output_tps_avg: '>= 20 tok/s'":               {"output_tps_avg", OpGreaterEqual, 20, nil, UnitTokensPerSecond},
		"requests_per_second: '>= 4'":                 {"requests_per_second", OpGreaterEqual, 4, nil, UnitRequestsPerSecond},
		"dropped: '== 0'":                             {"dropped", OpEqual, 0, nil, UnitCount},
		"dropped: '<= 5'":                             {"dropped", OpLessEqual, 5, nil, UnitCount},
		"dropped: '<= 0.1%'":                          {"dropped", OpLessEqual, 0.001, nil, UnitRatio},
		"tpot_p95: '<= baseline'":                     {"tpot_p95", OpLessEqual, 0, rel(1, 0), UnitMilliseconds},
		"tpot_p95: '<= baseline + 10%'":               {"tpot_p95", OpLessEqual, 0, rel(1.1, 0), UnitMilliseconds},
		"tpot_p95: '<=baseline+7%'":                   {"tpot_p95", OpLessEqual, 0, rel(1.07, 0), UnitMilliseconds},
		"tpot_p95: '< baseline - 5%'":                 {"tpot_p95", OpLess, 0, rel(0.95, 0), UnitMilliseconds},
		"tpot_p95: '<= baseline + 0.2s'":              {"tpot_p95", OpLessEqual, 0, rel(1, 200), UnitMilliseconds},
		"tpot_p95: '<= baseline ± 10%'":               {"tpot_p95", OpLessEqual, 0, rel(1.1, 0), UnitMilliseconds},
		"tpot_p95: '<= baseline ±0.2s'":               {"tpot_p95", OpLessEqual, 0, rel(1, 200), UnitMilliseconds},
		"goodput: '>= baseline ± 1%'":                 {"goodput", OpGreaterEqual, 0, rel(0.99, 0), UnitRatio},
		"output_tps_p5: '>= baseline ± 2'":            {"output_tps_p5", OpGreaterEqual, 0, rel(1, -2), UnitTokensPerSecond},
		"goodput: '>= baseline - 0.01'":               {"goodput", OpGreaterEqual, 0, rel(1, -0.01), UnitRatio},
		"output_tps_p5: '>= baseline -2'":             {"output_tps_p5", OpGreaterEqual, 0, rel(1, -2), UnitTokensPerSecond},
		"output_tokens_per_second: '>= 700 tokens/s'": {"output_tokens_per_second", OpGreaterEqual, 700, nil, UnitTokensPerSecond},
	} {
		t.Run(line, func(t *testing.T) {
			gate := mustLoad(t, "capacity_gate:\n  "+line+"\n").Gate
			require.Len(t, gate, 1)
			c := gate[0]
			require.Equal(t, w.name, c.Name)
			require.Equal(t, w.op, c.Op)
			require.Equal(t, w.unit, c.Unit)
			require.Equal(t, w.relative, c.Limit.Relative)
			if w.relative != nil {
				require.Nil(t, c.Limit.Absolute)
				return
			}
			limit, ok := c.Limit.Value()
			require.True(t, ok)
			require.Equal(t, w.absolute, limit)
		})
	}
}

func TestFullContract(t *testing.T) {
	c := loadFile(t, "testdata/full.yaml", func(name string) (string, bool) {
		value, ok := map[string]string{"SUCCESS_SLO": "99%", "MODEL": `x", "injected": "y`}[name]
		return value, ok
	})
	require.Equal(t, 0.99, *c.Gate[0].Limit.Absolute)
	require.Equal(t, ">= ${SUCCESS_SLO:-0.995}", c.Gate[0].Raw)
	require.Equal(t, ">= 99%", c.Gate[0].Text)
	require.Equal(t, []string{"long"}, c.Classes())

	var class []string
	for _, criterion := range c.Gate {
		if criterion.Class == "long" {
			class = append(class, criterion.Name)
		}
	}
	require.Equal(t, []string{"long/ttft_p99", "long/error_rate"}, class)
	require.Equal(t, Phases{Duration(2 * time.Minute), Duration(10 * time.Minute), Duration(2 * time.Minute), false}, c.Phases)

	depth := c.Recovery[0]
	require.Equal(t, "recovery.queue_depth", depth.Name)
	require.Equal(t, PhaseRecovery, depth.Phase)
	require.Equal(t, Stat{Kind: StatEnd}, depth.Stat)
	require.Equal(t, Relative{1, 1}, *depth.Limit.Relative)

	type rule struct {
		name       string
		op         Op
		limit      float64
		stat       Stat
		For, after time.Duration
	}
	var rules []rule
	for _, r := range c.Abort {
		limit, _ := r.Limit.Value()
		rules = append(rules, rule{r.Name, r.Op, limit, r.Stat, time.Duration(r.For), time.Duration(r.After)})
	}
	require.Equal(t, []rule{
		{"abort.error_rate", OpGreater, 0.2, Stat{Kind: StatRate}, 10 * time.Second, 0},
		{"abort.ttft_p99", OpGreater, 10000, Stat{StatQuantile, 0.99}, 30 * time.Second, 0},
		{"abort.e2e_p99", OpGreater, 60000, Stat{StatQuantile, 0.99}, 0, 3 * time.Minute},
		{"abort.queue_growth", OpEqual, 1, Stat{Kind: StatState}, 0, 0},
		{"abort.unhealthy", OpEqual, 1, Stat{Kind: StatState}, 10 * time.Second, 0},
		{"abort.client_headroom", OpEqual, 1, Stat{Kind: StatState}, 15 * time.Second, 0},
	}, rules)

	require.Equal(t, []float64{800, 50, 200, 30000}, []float64{*c.RequestSLO.TTFT, *c.RequestSLO.TPOT, *c.RequestSLO.ITL, *c.RequestSLO.E2E})
	require.Equal(t, &Server{
		MetricsURLs: []string{"http://127.0.0.1:8000/metrics", "http://127.0.0.1:8001/metrics"},
		HealthURLs:  []string{"http://127.0.0.1:8000/health"}, GPUURLs: []string{"http://127.0.0.1:9400/metrics"},
		Interval: Duration(time.Second), Engine: "vllm",
	}, c.Server)
	require.Equal(t, "results/concurrency-32", c.Baseline)
	require.Equal(t, `{"change":"max_num_seqs 32 -> 48","model":"x\", \"injected\": \"y","replicas":2,`+
		`"cost_per_hour":1.10,"notes":["first",{"second":true}]}`, string(c.Decision), "verbatim, in the file's order")
}

func TestPhasesThatAreLeftOutHaveNoLength(t *testing.T) {
	c := mustLoad(t, "capacity_gate: {ttft_p95: '<= 1s'}\nphases: {steady: 90s}")
	require.Equal(t, Phases{Steady: Duration(90 * time.Second)}, c.Phases)
}

func TestAbortRuleForms(t *testing.T) {
	for value, want := range map[string][]AbortRule{
		"unhealthy: true":                             {{For: 0, After: 0}},
		"unhealthy: false":                            nil,
		"unhealthy: true for 5s after 1m":             {{For: Duration(5 * time.Second), After: Duration(time.Minute)}},
		"queue_growth: sustained after 30s":           {{After: Duration(30 * time.Second)}},
		"queue_growth: {for: 5s, after: 1m}":          {{For: Duration(5 * time.Second), After: Duration(time.Minute)}},
		"queue_depth: '> 500 for 10s'":                {{For: Duration(10 * time.Second)}},
		"success_rate: '< 80% for 10s after 1m'":      {{For: Duration(10 * time.Second), After: Duration(time.Minute)}},
		"output_tokens_per_second: '< 100 for 1m30s'": {{For: Duration(90 * time.Second)}},
	} {
		t.Run(value, func(t *testing.T) {
			c := mustLoad(t, "capacity_gate: {ttft_p95: '<= 1s'}\nabort:\n  "+value)
			require.Len(t, c.Abort, len(want))
			for i, rule := range c.Abort {
				require.Equal(t, want[i].For, rule.For)
				require.Equal(t, want[i].After, rule.After)
			}
		})
	}
}

func TestAnchorsAndAliases(t *testing.T) {
	c := mustLoad(t, "capacity_gate:\n  by_class:\n    long: &slow {ttft_p99: '<= 6s'}\n    extreme: *slow\n")
	require.Equal(t, []string{"long/ttft_p99", "extreme/ttft_p99"}, []string{c.Gate[0].Name, c.Gate[1].Name})
	require.Equal(t, 6000.0, *c.Gate[1].Limit.Absolute)
}

func TestAliasesThatRepeatEachOtherAreBounded(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("capacity_gate: {ttft_p95: '<= 1s'}\ndecision:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&bomb, "  a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1, i-1)
	}
	_, err := Load("slo.yaml", []byte(bomb.String()), nil)
	require.EqualError(t, err, "slo.yaml:3:3: decision: found more than 65536 bytes once its aliases are followed, expected a smaller mapping")
}

func TestContractSurvivesJSON(t *testing.T) {
	for _, file := range []string{"testdata/minimal.yaml", "testdata/full.yaml"} {
		c := loadFile(t, file, nil)
		var buffer bytes.Buffer
		encoder := json.NewEncoder(&buffer)
		encoder.SetEscapeHTML(false)
		require.NoError(t, encoder.Encode(c))
		var back Contract
		require.NoError(t, json.Unmarshal(buffer.Bytes(), &back))
		require.Equal(t, c, &back)
		require.Equal(t, Thresholds(c), Thresholds(&back))
	}
}

func TestDurationText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		2 * time.Minute: "2m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Second: "10s",
		3*time.Hour + 5*time.Second: "3h0m5s", 0: "0s", 500 * time.Millisecond: "500ms", 10 * time.Hour: "10h",
	} {
		require.Equal(t, want, Duration(d).String())
		var back Duration
		require.NoError(t, back.UnmarshalText([]byte(want)))
		require.Equal(t, Duration(d), back)
	}
	require.Error(t, new(Duration).UnmarshalText([]byte("soon")))
}

// Whatever a limit is, writing it and reading it gives the same limit.
func TestLimitRoundTrip(t *testing.T) {
	metrics := []string{"ttft_p95", "itl_p99.9", "e2e_avg", "success_rate", "error_rate", "output_tps_p5", "output_tokens_per_second", "dropped"}
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.SampledFrom(metrics).Draw(rt, "key")
		spec, _, _, problem := parseKey(SectionGate, key)
		if problem != nil {
			rt.Fatal(problem)
		}
		whole := rapid.IntRange(1, 99_999).Draw(rt, "hundredths")
		value := roundDecimal(float64(whole) / 100)
		if spec.unit == UnitRatio {
			value = roundDecimal(float64(whole) / 100_000)
		}
		op := map[direction]Op{lower: OpLessEqual, higher: OpGreaterEqual}[spec.better]
		spelling := FormatQuantity(value, spec.unit)
		if rapid.Bool().Draw(rt, "relative") && key != "dropped" {
			percent := rapid.IntRange(1, 99).Draw(rt, "percent")
			sign := rapid.SampledFrom([]string{"+", "-"}).Draw(rt, "sign")
			text := fmt.Sprintf("%s baseline %s %d%%", op, sign, percent)
			got, problem := parseCondition(spec, text, false)
			if problem != nil {
				rt.Fatal(problem)
			}
			want := roundDecimal(1 + signed(sign, float64(percent))/100)
			if got.limit.Absolute != nil || got.limit.Relative.Factor != want || got.limit.Relative.Offset != 0 {
				rt.Fatalf("%s: %+v", text, got.limit.Relative)
			}
			return
		}
		got, problem := parseCondition(spec, string(op)+" "+spelling, false)
		if problem != nil {
			rt.Fatalf("%s %s: %v", key, spelling, problem)
		}
		if got.op != op || got.unit != spec.unit || *got.limit.Absolute != value {
			rt.Fatalf("%s %s: got %v %v %v, want %v", key, spelling, got.op, *got.limit.Absolute, got.unit, value)
		}
	})
}

// Editors on Windows put a byte order mark before a file; traces and prompts are read with one, too.
func TestAByteOrderMarkIsNoPartOfTheFirstKey(t *testing.T) {
	const text = "capacity_gate:\n  ttft_p95: \"<= 800ms\"\n"
	plain, err := Load("slo.yaml", []byte(text), nil)
	require.NoError(t, err)
	marked, err := Load("slo.yaml", []byte("\xef\xbb\xbf"+text), nil)
	require.NoError(t, err)
	require.Equal(t, plain, marked)
	_, err = Load("slo.yaml", []byte("\xef\xbb\xbfcapacity_gates: 1\n"), nil)
	require.ErrorContains(t, err, `slo.yaml:1:1: capacity_gates: found the unknown key "capacity_gates"`)
	_, err = Load("slo.yaml", []byte("\xef\xbb\xbf"), nil)
	require.ErrorContains(t, err, "an empty file")
}
