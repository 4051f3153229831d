package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// k6Types are the types that the metrics have in k6, with the aggregation methods k6 allows for each
// (k6 v1.8.1, metrics/metric_type.go).
var (
	k6Types = map[string]string{
		"llm_ttft": "trend", "llm_ttft_text": "trend", "llm_tpot": "trend", "llm_itl": "trend", "llm_e2e": "trend",
		"llm_schedule_delay": "trend", "llm_output_tps": "trend", "llm_success": "rate", "llm_goodput": "rate",
		"llm_http_5xx": "rate", "llm_requests": "counter", "dropped_iterations": "counter", "llm_queue_growth": "gauge",
	}
	k6Methods = map[string][]string{
		"trend": {"avg", "min", "max", "med", "p"}, "rate": {"rate"}, "counter": {"count", "rate"}, "gauge": {"value"},
	}
)

type k6Expression struct {
	method   string
	quantile float64
	op       string
	value    float64
}

// parseAsK6 follows k6 v1.8.1, metrics/thresholds_parser.go: the order of the operators, what is cut where,
// the p(…) form, ParseFloat for numbers. The number must keep to the documented grammar as well: digits.
func parseAsK6(t require.TestingT, text string) k6Expression {
	for _, op := range []string{"<=", "<", ">=", ">", "===", "==", "!="} {
		left, right, _ := strings.Cut(text, op)
		if right == "" {
			continue
		}
		method, quantile := strings.TrimSpace(left), 0.0
		if strings.HasPrefix(method, "p(") && strings.HasSuffix(method, ")") {
			parsed, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(method, "p("), ")"), 64)
			require.NoError(t, err)
			require.True(t, parsed > 0 && parsed < 100, "k6 panics on p(%g)", parsed)
			method, quantile = "p", parsed
		}
		right = strings.TrimSpace(right)
		require.Regexp(t, `^[0-9]+(\.[0-9]+)?$`, right)
		value, err := strconv.ParseFloat(right, 64)
		require.NoError(t, err)
		return k6Expression{method, quantile, op, value}
	}
	require.Fail(t, "malformed threshold expression", text)
	return k6Expression{}
}

func checkAsK6(t require.TestingT, threshold Threshold) k6Expression {
	name, tags, tagged := strings.Cut(threshold.Metric, "{")
	kind, known := k6Types[name]
	require.True(t, known, "k6 has no metric %s", name)
	if tagged {
		require.True(t, strings.HasSuffix(tags, "}"))
		for _, tag := range strings.Split(strings.TrimSuffix(tags, "}"), ",") {
			key, value, _ := strings.Cut(tag, ":")
			require.Contains(t, []string{"phase", "class"}, key)
			require.NotEmpty(t, value)
			require.Equal(t, value, strings.Trim(strings.TrimSpace(value), `"'`), "k6 trims these")
		}
	}
	expression := parseAsK6(t, threshold.Expression)
	require.Contains(t, k6Methods[kind], expression.method, threshold.Metric)
	return expression
}

func written(thresholds []Threshold) []string {
	var out []string
	for _, t := range thresholds {
		line := t.Metric + ": " + t.Expression
		if t.Guard {
			line = "guard " + line
		}
		if t.AbortOnFail {
			line += " abort " + t.DelayAbortEval
		}
		out = append(out, line+" <- "+strings.Join(t.Sources, " "))
	}
	return out
}

func TestThresholdsOfTheFullContract(t *testing.T) {
	c := loadFile(t, "testdata/full.yaml", nil)
	thresholds := Thresholds(c)
	for _, threshold := range thresholds {
		checkAsK6(t, threshold)
		require.NotEmpty(t, threshold.Comment)
	}
	require.Equal(t, []string{
		"guard llm_requests{phase:steady}: count>0 <- success_rate http_5xx goodput ttft_p95 ttft_p99 ttft_text_p99.9 itl_p99 tpot_p95 e2e_p99 e2e_avg output_tps_p5 output_tokens_per_second requests_per_second queue_growth",
		"llm_success{phase:steady}: rate>=0.995 <- success_rate",
		"llm_http_5xx{phase:steady}: rate==0 <- http_5xx",
		"llm_goodput{phase:steady}: rate>=0.95 <- goodput",
		"guard llm_ttft{phase:steady}: max>0 <- ttft_p95 ttft_p99",
		"llm_ttft{phase:steady}: p(95)<=800 <- ttft_p95",
		"llm_ttft{phase:steady}: p(99)<=2000 <- ttft_p99",
		"guard llm_ttft_text{phase:steady}: max>0 <- ttft_text_p99.9",
		"llm_ttft_text{phase:steady}: p(99.9)<10000 <- ttft_text_p99.9",
		"guard llm_itl{phase:steady}: max>0 <- itl_p99",
		"llm_itl{phase:steady}: p(99)<=80 <- itl_p99",
		"guard llm_tpot{phase:steady}: max>0 <- tpot_p95",
		"guard llm_e2e{phase:steady}: max>0 <- e2e_p99 e2e_avg",
		"llm_e2e{phase:steady}: p(99)<=30000 <- e2e_p99",
		"llm_e2e{phase:steady}: avg<=10000 <- e2e_avg",
		"llm_output_tps{phase:steady}: p(5)>=20 <- output_tps_p5",
		"llm_queue_growth: value<1 abort  <- queue_growth abort.queue_growth",
		"guard llm_requests{phase:steady,class:long}: count>0 <- long/ttft_p99 long/error_rate",
		"guard llm_ttft{phase:steady,class:long}: max>0 <- long/ttft_p99",
		"llm_ttft{phase:steady,class:long}: p(99)<=6000 <- long/ttft_p99",
		"llm_success{phase:steady,class:long}: rate>=0.99 <- long/error_rate",
		"guard llm_requests{phase:recovery}: count>0 <- recovery.ttft_p95",
		"guard llm_ttft{phase:recovery}: max>0 <- recovery.ttft_p95",
		"guard llm_schedule_delay{phase:steady}: max>0 <- client_headroom.schedule_delay_p99",
		"llm_schedule_delay{phase:steady}: p(99)<=5 <- client_headroom.schedule_delay_p99",
		"dropped_iterations{phase:steady}: count==0 <- client_headroom.dropped",
		"llm_e2e{phase:steady}: p(99)<=60000 abort 3m <- abort.e2e_p99",
	}, written(thresholds))

	resolved, err := c.Resolve(map[string]float64{"tpot_p95": 80, "recovery.queue_depth": 0, "recovery.ttft_p95": 500})
	require.NoError(t, err)
	after := written(Thresholds(resolved))
	require.Contains(t, after, "llm_tpot{phase:steady}: p(95)<=88 <- tpot_p95")
	require.Contains(t, after, "guard llm_tpot{phase:steady}: max>0 <- tpot_p95")
	require.Contains(t, after, "llm_ttft{phase:recovery}: p(95)<=600 <- recovery.ttft_p95")
	require.Len(t, after, len(thresholds)+2)
}

func TestThresholdOfEachLine(t *testing.T) {
	for line, want := range map[string]string{
		"error_rate: '<= 0.5%'":                     "llm_success{phase:steady}: rate>=0.995",
		"error_rate: '< 7%'":                        "llm_success{phase:steady}: rate>0.93",
		"error_rate: '== 0'":                        "llm_success{phase:steady}: rate==1",
		"success_rate: '== 1'":                      "llm_success{phase:steady}: rate==1",
		"ttft_med: '<= 1s'":                         "llm_ttft{phase:steady}: p(50)<=1000",
		"ttft_min: '<= 1s'":                         "llm_ttft{phase:steady}: min<=1000",
		"itl_p99_99: '<= 0.25ms'":                   "llm_itl{phase:steady}: p(99.99)<=0.25",
		"dropped: '<= 5'":                           "dropped_iterations{phase:steady}: count<=5",
		"dropped: '<= 1%'":                          "",
		"requests_per_second: '>= 5'":               "",
		"output_tokens_per_second: '>= 5'":          "",
		"tpot_p95: '<= baseline'":                   "",
		"by_class: {a: {dropped: '== 0'}}":          "",
		"by_class: {a b: {output_tps_p10: '>= 5'}}": "llm_output_tps{phase:steady,class:a b}: p(10)>=5",
		"e2e_p99: '<= 100000h'":                     "llm_e2e{phase:steady}: p(99)<=360000000000",
	} {
		t.Run(line, func(t *testing.T) {
			var got []string
			for _, threshold := range Thresholds(mustLoad(t, "client_headroom: {dropped: off}\ncapacity_gate:\n  "+line)) {
				checkAsK6(t, threshold)
				if !threshold.Guard {
					got = append(got, threshold.Metric+": "+threshold.Expression)
				}
			}
			if want == "" {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []string{want}, got)
		})
	}
}

func TestAbortThresholds(t *testing.T) {
	const gate = "client_headroom: {dropped: off}\ncapacity_gate: {ttft_p99: '<= 2s'}\nabort:\n  "
	for line, want := range map[string]string{
		"error_rate: '> 20%'":              "llm_success{phase:steady}: rate>=0.8 abort  <- abort.error_rate",
		"success_rate: '<= 80% after 1m'":  "llm_success{phase:steady}: rate>0.8 abort 1m <- abort.success_rate",
		"ttft_p99: '>= 10s after 30s'":     "llm_ttft{phase:steady}: p(99)<10000 abort 30s <- abort.ttft_p99",
		"ttft_p99: '> 2s'":                 "llm_ttft{phase:steady}: p(99)<=2000 abort  <- ttft_p99 abort.ttft_p99",
		"ttft_p99: '> 2s after 1m'":        "llm_ttft{phase:steady}: p(99)<=2000 abort 1m <- ttft_p99 abort.ttft_p99",
		"dropped: '> 0'":                   "dropped_iterations{phase:steady}: count<=0 abort  <- abort.dropped",
		"output_tps_p5: '< 2'":             "llm_output_tps{phase:steady}: p(5)>=2 abort  <- abort.output_tps_p5",
		"queue_growth: sustained after 1m": "llm_queue_growth: value<1 abort 1m <- abort.queue_growth",
		"queue_growth: {for: 10s}":         "",
		"error_rate: '> 20% for 10s'":      "",
		"dropped: '> 1%'":                  "",
		"queue_depth: '> 500'":             "",
		"unhealthy: true":                  "",
		"client_headroom: true":            "",
		"output_tokens_per_second: '< 10'": "",
		"tpot_p99: '> baseline + 100%'":    "",
	} {
		t.Run(line, func(t *testing.T) {
			var got []string
			for _, threshold := range Thresholds(mustLoad(t, gate+line)) {
				checkAsK6(t, threshold)
				if threshold.AbortOnFail {
					got = append(got, written([]Threshold{threshold})...)
				}
			}
			if want == "" {
				require.Empty(t, got)
				return
			}
			require.Equal(t, []string{want}, got)
		})
	}
}

// What k6 decides on a value is what the criterion says about the value, whatever the limit.
func TestThresholdDecidesAsTheCriterion(t *testing.T) {
	keys := []string{"ttft_p95", "e2e_avg", "success_rate", "error_rate", "http_5xx", "goodput", "output_tps_p5", "dropped"}
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.SampledFrom(keys).Draw(rt, "key")
		spec, _, _, _ := parseKey(SectionGate, key)
		strict := rapid.Bool().Draw(rt, "strict")
		op := map[direction]string{lower: "<", higher: ">"}[spec.better]
		if !strict {
			op += "="
		}
		thousandths := rapid.IntRange(1, 999).Draw(rt, "thousandths")
		limit, unit := fmt.Sprintf("0.%03d", thousandths), ""
		if spec.unit == UnitMilliseconds {
			unit = "s"
		}
		if key == "dropped" {
			limit = strconv.Itoa(thousandths)
		}
		c, err := Load("slo.yaml", []byte(fmt.Sprintf("client_headroom: {dropped: off}\ncapacity_gate: {%s: '%s %s%s'}", key, op, limit, unit)), nil)
		if err != nil {
			rt.Fatal(err)
		}
		thresholds := slices.DeleteFunc(Thresholds(c), func(t Threshold) bool { return t.Guard })
		if len(thresholds) != 1 {
			rt.Fatalf("%d thresholds", len(thresholds))
		}
		expression := checkAsK6(rt, thresholds[0])
		measured := float64(rapid.IntRange(0, 1000).Draw(rt, "measured"))
		if key != "dropped" && spec.unit != UnitMilliseconds {
			measured /= 1000
		}
		if rapid.Bool().Draw(rt, "on the limit") {
			measured, _ = c.Gate[0].Limit.Value()
		}
		inK6 := measured
		if key == "error_rate" {
			inK6 = roundDecimal(1 - measured)
		}
		met, _ := c.Gate[0].Met(measured)
		if k6 := Op(expression.op).Holds(inK6, expression.value); k6 != met {
			rt.Fatalf("%s %g: k6 says %v, the criterion %v", thresholds[0].Expression, measured, k6, met)
		}
	})
}

// A limit that waits for its baseline has no number yet; that something was measured is asked for all the same.
func TestALimitWithoutItsBaselineKeepsItsGuards(t *testing.T) {
	c := mustLoad(t, `capacity_gate:
  tpot_p95: "<= baseline + 10%"
  success_rate: ">= baseline"
  output_tps_p5: ">= baseline - 10%"
client_headroom: {cpu: off, memory: off, open_files: off, timer_delay_p99: off, schedule_error: off, dropped: off}
`)
	var found []string
	for _, threshold := range Thresholds(c) {
		require.True(t, threshold.Guard)
		found = append(found, threshold.Metric+": "+threshold.Expression)
	}
	require.Equal(t, []string{"llm_requests{phase:steady}: count>0", "llm_tpot{phase:steady}: max>0"}, found)
}
