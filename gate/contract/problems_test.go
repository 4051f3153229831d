package contract

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorsNamePlaceFoundAndExpected(t *testing.T) {
	const gate = "capacity_gate: {ttft_p95: '<= 1s'}\n"
	for name, test := range map[string]struct{ text, want string }{
		"empty":               {"", `slo.yaml:1:1: capacity_gate: found an empty file, expected a mapping with capacity_gate`},
		"not a mapping":       {"- a\n", `slo.yaml:1:1: found a list, expected a mapping with capacity_gate and other sections`},
		"no gate":             {"phases: {steady: 1m}\n", `slo.yaml:1:1: capacity_gate: found a contract without it, expected capacity_gate with at least one criterion`},
		"empty gate":          {"capacity_gate: {}\n", `slo.yaml:1:16: capacity_gate: found no criterion, expected at least one criterion, as in ttft_p95: "<= 800ms"`},
		"empty classes":       {"capacity_gate: {by_class: {}}\n", `slo.yaml:1:16: capacity_gate: found classes without a criterion, expected at least one criterion, as in ttft_p95: "<= 800ms"`},
		"empty class":         {"capacity_gate: {by_class: {long: {}}}\n", `slo.yaml:1:16: capacity_gate: found classes without a criterion, expected at least one criterion, as in ttft_p95: "<= 800ms"`},
		"gate without value":  {"capacity_gate:\n", `slo.yaml:1:1: capacity_gate: found nothing, expected a mapping with criteria`},
		"unknown section":     {gate + "aborts: {}\n", `slo.yaml:2:1: aborts: found the unknown key "aborts", expected a key of a contract; did you mean "abort"?`},
		"two documents":       {gate + "---\na: 1\n", `slo.yaml:3:1: found a second YAML document, expected one document`},
		"duplicate key":       {"capacity_gate:\n  ttft_p95: '<= 1s'\n  ttft_p95: '<= 2s'\n", `slo.yaml:3:3: capacity_gate.ttft_p95: found the key "ttft_p95" again, expected each key once (it stands on line 2 already)`},
		"same criterion":      {"capacity_gate:\n  ttft_p99.9: '<= 1s'\n  ttft_p99_9: '<= 2s'\n", `slo.yaml:3:3: capacity_gate.ttft_p99_9: found a second "ttft_p99.9", expected each criterion once (it stands on line 2 already)`},
		"merge key":           {"capacity_gate: {<<: {ttft_p95: '<= 1s'}}\n", `slo.yaml:1:17: capacity_gate: found a merge key <<, expected a plain key` + "\n" + `slo.yaml:1:16: `},
		"tag":                 {"capacity_gate: {ttft_p95: !!str x}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found the tag "!!str", expected a value without a YAML tag`},
		"unknown alias":       {"capacity_gate: {ttft_p95: *x}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found the alias *x, expected an anchor &x before it`},
		"unquoted >":          {"capacity_gate:\n  success_rate: >= 0.995\n", `slo.yaml:2:17: found malformed YAML (invalid header option: "= 0.995"), expected valid YAML: a value that begins with ">" must be quoted, as in success_rate: ">= 0.995"`},
		"unquoted variable":   {"capacity_gate: {ttft_p95: ${X}}\n", `slo.yaml:1:28: found malformed YAML (',' or '}' must be specified), expected valid YAML: inside {…} a value with a variable must be quoted, as in {cpu: "<= ${CPU}"}`},
		"column counts runes": {"capacity_gate: {by_class: {größe: {ttft_p95: 'x'}}}\n", `slo.yaml:1:46: capacity_gate.by_class.größe.ttft_p95: found "x", expected a comparison and a limit, as in "<= 800ms"`},

		"misspelt metric":      {"capacity_gate: {tftf_p95: '<= 1s'}\n", `slo.yaml:1:17: capacity_gate.tftf_p95: found the unknown key "tftf_p95", expected a key of capacity_gate; did you mean "ttft_p95"?`},
		"metric without stat":  {"capacity_gate: {ttft: '<= 1s'}\n", `slo.yaml:1:17: capacity_gate.ttft: found "ttft" without a statistic, expected ttft_<statistic>, as in ttft_p95`},
		"unknown stat":         {"capacity_gate: {ttft_q95: '<= 1s'}\n", `slo.yaml:1:17: capacity_gate.ttft_q95: found the statistic "q95", expected a statistic: pNN for any quantile (p50, p95, p99, p99.9), avg, min, max or med`},
		"mean":                 {"capacity_gate: {ttft_mean: '<= 1s'}\n", `slo.yaml:1:17: capacity_gate.ttft_mean: found the statistic "mean", expected a statistic: pNN for any quantile (p50, p95, p99, p99.9), avg, min, max or med; did you mean "avg"?`},
		"p999 is ambiguous":    {"capacity_gate: {ttft_p999: '<= 1s'}\n", `slo.yaml:1:17: capacity_gate.ttft_p999: found the quantile "p999", expected p99.9: a quantile above p99 is written with a point`},
		"p100":                 {"capacity_gate: {ttft_p100: '<= 1s'}\n", `slo.yaml:1:17: capacity_gate.ttft_p100: found the quantile "p100", expected a quantile above p0 and below p100 (the largest sample is max)`},
		"p0":                   {"capacity_gate: {ttft_p0: '<= 1s'}\n", `slo.yaml:1:17: capacity_gate.ttft_p0: found the quantile "p0", expected a quantile above p0 and below p100 (the smallest sample is min)`},
		"p150":                 {"capacity_gate: {ttft_p150: '<= 1s'}\n", `slo.yaml:1:17: capacity_gate.ttft_p150: found the quantile "p150", expected a quantile above p0 and below p100 (the largest sample is max)`},
		"leading zero":         {"capacity_gate: {ttft_p095: '<= 1s'}\n", `slo.yaml:1:17: capacity_gate.ttft_p095: found the statistic "p095", expected a statistic: pNN for any quantile (p50, p95, p99, p99.9), avg, min, max or med`},
		"fast tail of a speed": {"capacity_gate: {output_tps_p95: '>= 20'}\n", `slo.yaml:1:17: capacity_gate.output_tps_p95: found quantile p95 of output_tps, whose high side is the good one, expected a quantile of its slow side, such as output_tps_p5 (at most p50)`},
		"wrong section":        {"capacity_gate: {cpu: '<= 80%'}\n", `slo.yaml:1:17: capacity_gate.cpu: found the key "cpu", expected it in client_headroom, where cpu belongs`},
		"queue in a class":     {"capacity_gate: {by_class: {a: {queue_growth: no_sustained_growth}}}\n", `slo.yaml:1:32: capacity_gate.by_class.a.queue_growth: found the key "queue_growth", expected it in capacity_gate itself: the queue is one for all classes`},
		"class k6 cannot name": {"capacity_gate: {by_class: {'a,b': {ttft_p95: '<= 1s'}}}\n", `slo.yaml:1:28: capacity_gate.by_class: found the class "a,b", expected a class name that k6 can filter by: not empty, without , { } " ' or spaces around it`},
		"stat on a rate":       {"capacity_gate: {success_rate_p95: '>= 1'}\n", `slo.yaml:1:17: capacity_gate.success_rate_p95: found the unknown key "success_rate_p95", expected a key of capacity_gate; did you mean "success_rate"?`},

		"no operator":          {"capacity_gate: {success_rate: 0.995}\n", `slo.yaml:1:31: capacity_gate.success_rate: found "0.995", expected a comparison and a limit, as in ">= 99.5%"`},
		"reversed operator":    {"capacity_gate: {ttft_p95: '=< 1s'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found the operator "=<", expected one of <, <=, >, >=, ==; did you mean <=?`},
		"no unit":              {"capacity_gate: {ttft_p95: '<= 800'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "800", expected a time with a unit (us, ms, s, m, h), as in "<= 800ms"`},
		"wrong unit":           {"capacity_gate: {ttft_p95: '<= 800 tokens'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "800 tokens", expected a time with a unit (us, ms, s, m, h), as in "<= 800ms"`},
		"rate above 1":         {"capacity_gate: {success_rate: '>= 99.5'}\n", `slo.yaml:1:31: capacity_gate.success_rate: found "99.5", expected a share from 0 to 1, or from 0% to 100%, as in ">= 99.5%"`},
		"rate above 100 %":     {"capacity_gate: {error_rate: '<= 101%'}\n", `slo.yaml:1:29: capacity_gate.error_rate: found "101%", expected a share from 0 to 1, or from 0% to 100%, as in "<= 1%"`},
		"rate in ms":           {"capacity_gate: {error_rate: '<= 1ms'}\n", `slo.yaml:1:29: capacity_gate.error_rate: found "1ms", expected a share: a number from 0 to 1, or a percentage, as in "<= 1%"`},
		"negative":             {"capacity_gate: {ttft_p95: '<= -5ms'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "-5ms", expected a number that is not negative, as in "<= 800ms"`},
		"out of range":         {"capacity_gate: {ttft_p95: '<= 1e999ms'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "1e999ms", expected a number that is not out of range, as in "<= 800ms"`},
		"wrong direction":      {"capacity_gate: {ttft_p95: '>= 800ms'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found ">= 800ms", expected < or <=: ttft is better when it is lower`},
		"wrong direction, up":  {"capacity_gate: {goodput: '< 90%'}\n", `slo.yaml:1:26: capacity_gate.goodput: found "< 90%", expected > or >=: goodput is better when it is higher`},
		"equality":             {"capacity_gate: {dropped: '== 3'}\n", `slo.yaml:1:26: capacity_gate.dropped: found "== 3", expected == only at the best value of dropped, 0`},
		"equality of a time":   {"capacity_gate: {ttft_p95: '== 3ms'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "== 3ms", expected < or <=: ttft is better when it is lower`},
		"limit never kept":     {"capacity_gate: {success_rate: '> 100%'}\n", `slo.yaml:1:31: capacity_gate.success_rate: found "> 100%", expected a limit that can be kept`},
		"time of zero":         {"capacity_gate: {ttft_p95: '<= 0ms'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "<= 0ms", expected a limit that can be kept`},
		"holding time in gate": {"capacity_gate: {ttft_p95: '<= 1s for 10s'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "1s for 10s", expected a limit alone: "for" and "after" belong to the rules of abort`},
		"baseline offset":      {"capacity_gate: {ttft_p95: '<= baseline + 5'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "baseline + 5", expected "baseline", "baseline + 10%" or "baseline + 50ms"`},
		"baseline ± for ==":    {"capacity_gate: {success_rate: '== baseline ± 1%'}\n", `slo.yaml:1:31: capacity_gate.success_rate: found "== baseline ± 1%", expected >= or >: "± 1%" is the room on the limit's side of the baseline, and == leaves none`},
		"dropped ± for ==":     {"capacity_gate: {dropped: '== baseline ± 1'}\n", `slo.yaml:1:26: capacity_gate.dropped: found "== baseline ± 1", expected <= or <: "± 1" is the room on the limit's side of the baseline, and == leaves none`},
		"± without amount":     {"capacity_gate: {ttft_p95: '<= baseline ±'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "baseline ±", expected "baseline", "baseline + 10%" or "baseline + 50ms"`},
		"± of everything":      {"capacity_gate: {goodput: '>= baseline ± 100%'}\n", `slo.yaml:1:26: capacity_gate.goodput: found "baseline ± 100%", expected less than 100% to be taken off the baseline`},
		"baseline taken away":  {"capacity_gate: {ttft_p95: '<= baseline - 100%'}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found "baseline - 100%", expected less than 100% to be taken off the baseline`},
		"growth word":          {"capacity_gate: {queue_growth: none}\n", `slo.yaml:1:31: capacity_gate.queue_growth: found "none", expected no_sustained_growth`},
		"list for a condition": {"capacity_gate: {ttft_p95: [1]}\n", `slo.yaml:1:27: capacity_gate.ttft_p95: found a list, expected a condition such as "<= 800ms"`},
		"nothing":              {"capacity_gate:\n  ttft_p95:\n", `slo.yaml:2:3: capacity_gate.ttft_p95: found nothing, expected a condition such as "<= 800ms"`},

		"phase without unit":       {gate + "phases: {steady: 10}\n", `slo.yaml:2:18: phases.steady: found "10", expected a duration such as 500ms, 10s, 2m or 1h30m`},
		"no steady phase":          {gate + "phases: {warmup: 10s}\n", `slo.yaml:2:9: phases.steady: found no steady phase, expected a duration above 0: the steady phase is what the gate judges`},
		"steady of zero":           {gate + "phases: {steady: 0}\n", `slo.yaml:2:18: phases.steady: found no steady phase, expected a duration above 0: the steady phase is what the gate judges`},
		"unknown phase":            {gate + "phases: {steady: 1m, cooldown: 1m}\n", `slo.yaml:2:22: phases.cooldown: found the unknown key "cooldown", expected a key of phases: recovery, steady, warmup`},
		"recovery without a phase": {gate + "phases: {steady: 1m}\nrecovery: {ttft_p95: '<= 1s'}\n", `slo.yaml:3:1: recovery: found criteria for a phase that phases does not have, expected phases.recovery above 0`},
		"faulty phases, once":      {gate + "phases: {steady: x}\nrecovery: {ttft_p95: '<= 1s'}\n", `slo.yaml:2:18: phases.steady: found "x", expected a duration such as 500ms, 10s, 2m or 1h30m`},
		"abort describes good":     {gate + "abort: {ttft_p99: '<= 10s'}\n", `slo.yaml:2:19: abort.ttft_p99: found "<= 10s", expected > or >=: a rule of abort describes the bad state, and ttft is better when it is lower`},
		"abort never":              {gate + "abort: {error_rate: '> 100%'}\n", `slo.yaml:2:21: abort.error_rate: found "> 100%", expected a limit that can be crossed`},
		"abort always":             {gate + "abort: {error_rate: '>= 0'}\n", `slo.yaml:2:21: abort.error_rate: found ">= 0", expected a limit that is not crossed from the start`},
		"abort holding time":       {gate + "abort: {error_rate: '> 5% for ever'}\n", `slo.yaml:2:21: abort.error_rate: found "ever", expected a duration such as 500ms, 10s, 2m or 1h30m`},
		"abort holding zero":       {gate + "abort: {error_rate: '> 5% for 0s'}\n", `slo.yaml:2:21: abort.error_rate: found "5% for 0s", expected a duration above 0 after "for" and "after"`},
		"abort state word":         {gate + "abort: {queue_growth: true}\n", `slo.yaml:2:23: abort.queue_growth: found "true", expected sustained, "sustained for 10s", or {for: 10s, after: 1m}`},
		"abort level with stat":    {gate + "abort: {queue_depth_p95: '> 5'}\n", `slo.yaml:2:9: abort.queue_depth_p95: found the unknown key "queue_depth_p95", expected a key of abort; did you mean "queue_depth"?`},
		"confidence":               {gate + "confidence: 0.4\n", `slo.yaml:2:13: confidence: found "0.4", expected a number above 0.5 and below 1, as in 0.95`},
		"confidence of one":        {gate + "confidence: 100%\n", `slo.yaml:2:13: confidence: found "100%", expected a number above 0.5 and below 1, as in 0.95`},
		"engine":                   {gate + "server: {engine: vlm}\n", `slo.yaml:2:18: server.engine: found "vlm", expected one of auto, vllm, sglang, tgi, llamacpp, tensorrt-llm, triton, dynamo`},
		"interval":                 {gate + "server: {interval: 0s}\n", `slo.yaml:2:20: server.interval: found "0s", expected an interval of at least 100ms`},
		"address":                  {gate + "server: {metrics_url: ['http://127.0.0.1:1/m', 'localhost:8000']}\n", `slo.yaml:2:48: server.metrics_url[1]: found "localhost:8000", expected an address such as http://127.0.0.1:8000/metrics`},
		"address twice":            {gate + "server: {metrics_url: ['http://127.0.0.1:1/m', 'http://127.0.0.1:1/m']}\n", `slo.yaml:2:48: server.metrics_url[1]: found "http://127.0.0.1:1/m" again, expected each replica once`},
		"tight colon":              {gate + "decision: {image: [vllm:0.6]}\n", `slo.yaml:2:20: decision.image[0]: found "vllm:…" with no space after its colon, expected quotes around a text with a colon, or a space to make it a mapping`},
		"credentials":              {gate + "server: {health_url: 'http://me:secret@127.0.0.1/health'}\n", `slo.yaml:2:22: server.health_url: found an address with credentials, expected one without: a contract is kept with the results`},
		"request slo":              {gate + "request_slo: {ttft: '<= baseline'}\n", `slo.yaml:2:21: request_slo.ttft: found "<= baseline", expected a time such as 800ms: the limit of one request has no baseline`},
		"decision":                 {gate + "decision: yes\n", `slo.yaml:2:11: decision: found "yes", expected a mapping with whatever describes the decision`},
		"baseline":                 {gate + "baseline: []\n", `slo.yaml:2:11: baseline: found a list, expected the path of a stored run or verdict`},
		"long line":                {gate + "# " + strings.Repeat("x", maxLineBytes) + "\n", `slo.yaml:2:1: found a line of 2002 bytes, expected lines of at most 2000 bytes`},
		"deep brackets":            {strings.Repeat("[", 100), `slo.yaml:1:1: found malformed YAML (brackets nested more than 64 deep), expected valid YAML`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Load("slo.yaml", []byte(test.text), nil)
			require.Nil(t, c)
			if name == "merge key" { // the gate is empty as well then; both are said, in order
				require.EqualError(t, err, `slo.yaml:1:16: capacity_gate: found no criterion, expected at least one criterion, as in ttft_p95: "<= 800ms"`+"\n"+
					`slo.yaml:1:17: capacity_gate: found a merge key <<, expected a plain key`)
				return
			}
			require.EqualError(t, err, test.want)
			var problems Errors
			require.ErrorAs(t, err, &problems)
			require.Len(t, problems, 1)
		})
	}
}

func TestAllErrorsAtOnceInOrder(t *testing.T) {
	_, err := Load("slo.yaml", []byte(`confidence: 2
capacity_gate:
  ttft_p95: "<= 800"
  nonsense: 1
  success_rate: ">= ${RATE}"
  by_class:
    long: {itl_p99: "> 1s"}
abort: {unhealthy: maybe}
phases: {steady: x}
`), nil)
	require.EqualError(t, err, strings.Join([]string{
		`slo.yaml:1:13: confidence: found "2", expected a number above 0.5 and below 1, as in 0.95`,
		`slo.yaml:3:13: capacity_gate.ttft_p95: found "800", expected a time with a unit (us, ms, s, m, h), as in "<= 800ms"`,
		`slo.yaml:4:3: capacity_gate.nonsense: found the unknown key "nonsense", expected a key of capacity_gate: ` + strings.Join(sectionKeys(SectionGate), ", "),
		`slo.yaml:5:17: capacity_gate.success_rate: found ${RATE}, a variable that is not set, expected RATE to be set, or a default: ${RATE:-default}`,
		`slo.yaml:7:21: capacity_gate.by_class.long.itl_p99: found "> 1s", expected < or <=: itl is better when it is lower`,
		`slo.yaml:8:20: abort.unhealthy: found "maybe", expected true, "true for 10s", or {for: 10s, after: 1m}`,
		`slo.yaml:9:18: phases.steady: found "x", expected a duration such as 500ms, 10s, 2m or 1h30m`,
	}, "\n"))
}

func TestEditDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"ttft", "tftf", 2},
		{"abort", "aborts", 1},
		{"ab", "ba", 1},
		{"kitten", "sitting", 3},
		{"größe", "grösse", 2},
	} {
		require.Equal(t, test.want, editDistance(test.a, test.b), "%s %s", test.a, test.b)
	}
	_, ok := didYouMean("zzzzzz", []string{"abort", "phases"})
	require.False(t, ok)
}
