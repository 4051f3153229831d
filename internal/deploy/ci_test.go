package deploy

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const constantLoad = `
import llm from 'k6/x/llm';
import trace from 'k6/x/llm/trace';
import gate from 'k6/x/llm/gate';
const contract = gate.open('./slo.yaml');
const workload = trace.generate({ rate: 25, duration: '4s', burstiness: 'constant', mix: 'short=1@40/8', seed: 1 });
export const options = {
  scenarios: { ...workload.phases(contract.phases, { preAllocatedVUs: 40, maxVUs: 40, tolerance: '20s' }), ...gate.monitor(contract) },
  thresholds: contract.thresholds(),
};
const client = new llm.Client({ baseURL: __ENV.LLM_BASE_URL, model: 'sim' });
export default function () { client.chat(workload.next()); }
`

// withOwn adds thresholds of the script's own to those of the contract.
func withOwn(thresholds string) string {
	return strings.ReplaceAll(constantLoad, "contract.thresholds()", "contract.thresholds("+thresholds+")")
}

// The tests share their machine with the engine: but for one case its headroom is not under test.
const shortPhases = `
client_headroom: {cpu: off, memory: off, timer_delay_p99: off, schedule_error: off, dropped: off, HEADROOM}
phases: {warmup: 1s, steady: 3s}
`

func TestGateScriptEndsWithTheVerdict(t *testing.T) {
	t.Parallel()
	script, err := filepath.Abs("../../examples/ci/gate.sh")
	require.NoError(t, err)
	engine := startEngine(t, nil)
	type gateCase struct {
		contract string
		headroom string
		script   string
		env      []string
		exit     int
		says     string
		report   string // in report.md
		judgedBy string // another contract than the script's
		before   string // a shell line before each k6 with the arguments "$@"
		undrawn  bool

		dir  string
		wait func() ran
	}
	cases := map[string]*gateCase{
		"pass": {contract: `capacity_gate: {success_rate: ">= 0.5"}`, exit: 0, says: "PASS", report: "PASS"},
		"fail": {contract: `capacity_gate: {ttft_p95: "<= 0.001ms"}`, exit: 1, says: "FAIL", report: "FAIL"},
		"too little evidence": {
			contract: `capacity_gate: {success_rate: ">= 0.9999"}`, exit: 2, says: "INCONCLUSIVE", report: "INCONCLUSIVE",
		},
		"too little evidence, allowed": {
			contract: `capacity_gate: {success_rate: ">= 0.9999"}`, env: []string{"ALLOW_INCONCLUSIVE=1"}, exit: 0,
			says: "this run proves nothing", report: "INCONCLUSIVE",
		},
		"a failure is not allowed with it": {
			contract: `capacity_gate: {ttft_p95: "<= 0.001ms", success_rate: ">= 0.9999"}`, env: []string{"ALLOW_INCONCLUSIVE=1"},
			exit: 1, says: "FAIL", report: "FAIL",
		},
		"an invalid run is not allowed with it": {
			contract: `capacity_gate: {success_rate: ">= 0.5"}`, headroom: `open_files: "<= 0.0001%"`,
			env: []string{"ALLOW_INCONCLUSIVE=1"}, exit: 2, says: "INVALID", report: "INVALID",
		},
		"a threshold of the script's own": {
			contract: `capacity_gate: {success_rate: ">= 0.5"}`, script: withOwn(`{ http_req_duration: ['max<0.001'], checks: ['rate>=0'] }`),
			exit: 1, says: "the contract's verdict is PASS, but thresholds of the script's own were crossed",
			report: "a threshold of the script's own was crossed: http\\_req\\_duration max&lt;0.001. ",
		},
		"a threshold of the script's own is not allowed with too little evidence": {
			contract: `capacity_gate: {success_rate: ">= 0.9999"}`, script: withOwn(`{ http_req_duration: ['max<0.001'] }`),
			env: []string{"ALLOW_INCONCLUSIVE=1"}, exit: 1,
			says: "the contract's verdict is INCONCLUSIVE, but thresholds of the script's own were crossed", report: "INCONCLUSIVE",
		},
		"thresholds of the script's contract, judged by another": {
			contract: `capacity_gate: {ttft_p95: "<= 0.001ms"}`, judgedBy: `capacity_gate: {success_rate: ">= 0.5"}`,
			script: withOwn(`{ http_req_duration: ['max<100000'] }`), exit: 0,
			says: "k6 ended with 99 for thresholds that a contract asks for", report: "PASS",
		},
		"no page": {
			contract: `capacity_gate: {success_rate: ">= 0.5"}`, before: `if [ "$2 $3" = "llm report" ]; then exit 3; fi`, undrawn: true, exit: 0,
			says: "gate.sh: the page could not be drawn: there is no out/report.html. The verdict stands", report: "PASS",
		},
		"a 99 that the evidence does not explain": {
			contract: `capacity_gate: {success_rate: ">= 0.5"}`, before: `if [ "$1" = run ]; then ` + k6(t) + ` "$@" && exit 99; fi`,
			exit: 1, says: "k6 ended with 99, and the evidence does not say for which threshold", report: "PASS",
		},
		"a contract that is not there": {
			contract: `capacity_gate: {success_rate: ">= 0.5"}`, env: []string{"CONTRACT=nowhere.yaml"}, exit: 3, says: "nowhere.yaml",
		},
		"a broken script": {
			contract: `capacity_gate: {success_rate: ">= 0.5"}`, script: "export default function () { not javascript", exit: 4,
			says: "there is nothing to judge",
		},
	}
	for _, c := range cases {
		c.dir = t.TempDir()
		write(t, c.dir, "script.js", cmp.Or(c.script, constantLoad))
		write(t, c.dir, "slo.yaml", c.contract+strings.ReplaceAll(shortPhases, "HEADROOM", cmp.Or(c.headroom, "open_files: off")))
		binary := k6(t)
		if c.judgedBy != "" {
			write(t, c.dir, "other.yaml", c.judgedBy+strings.ReplaceAll(shortPhases, "HEADROOM", "open_files: off"))
			c.env = append(c.env, "CONTRACT=other.yaml")
		}
		if c.before != "" {
			write(t, c.dir, "k6.sh", "#!/bin/sh\n"+c.before+"\nexec "+k6(t)+" \"$@\"\n")
			binary = filepath.Join(c.dir, "k6.sh")
			require.NoError(t, os.Chmod(binary, 0o700))
		}
		c.wait = start(t, c.dir, append(c.env, "K6="+binary, "K6_ARGS=--address= --summary-mode=disabled", "LLM_BASE_URL="+engine+"/v1",
			"GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY=summary.md"), "sh", script, "script.js", "out")
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := c.wait()
			summary := filepath.Join(c.dir, "summary.md")
			require.Equal(t, c.exit, r.exit, r.out)
			require.Contains(t, r.out, c.says)
			if c.report == "" {
				require.NoFileExists(t, summary)

				return
			}
			report, err := os.ReadFile(filepath.Join(c.dir, "out", "report.md"))
			require.NoError(t, err)
			require.Contains(t, string(report), c.report)
			shown, err := os.ReadFile(summary)
			require.NoError(t, err)
			require.Equal(t, string(report), string(shown))
			require.Regexp(t, `(?m)^::(error|warning|notice) title=`, r.out, "annotations")
			require.FileExists(t, filepath.Join(c.dir, "out", "junit.xml"))
			if !c.undrawn {
				page, err := os.ReadFile(filepath.Join(c.dir, "out", "report.html"))
				require.NoError(t, err)
				require.Contains(t, string(page), "<html")
			}
		})
	}
}

func TestGateScriptRefusesWrongUse(t *testing.T) {
	r := start(t, ".", nil, "sh", "../../examples/ci/gate.sh")()
	require.Equal(t, 3, r.exit)
	require.Contains(t, r.out, "usage: gate.sh SCRIPT [RESULTS]")
}

func TestGitHubWorkflow(t *testing.T) {
	docs := documents(t, "../../examples/ci/github-actions.yml")
	require.Len(t, docs, 1)
	require.Contains(t, docs[0], "on")
	require.Equal(t, object{"contents": "read"}, docs[0]["permissions"])
	require.Equal(t, false, at(t, docs[0], "concurrency", "cancel-in-progress"))
	job := at(t, docs[0], "jobs", "gate")
	require.Equal(t, object{"contents": "read", "pull-requests": "write"}, at(t, job, "permissions"))

	var gated, kept, told bool
	for _, s := range at(t, job, "steps").([]any) {
		step := s.(object)
		command, _ := step["run"].(string)
		uses, _ := step["uses"].(string)
		switch {
		case strings.Contains(command, "sh ci/gate.sh"):
			require.NotContains(t, command, "||", "the verdict is the step's exit code")
			require.NotContains(t, step, "continue-on-error")
			gated = true
		case strings.HasPrefix(uses, "actions/upload-artifact@"):
			require.Equal(t, "always()", step["if"])
			require.Equal(t, "results/", at(t, step, "with", "path"), "report.html is in it")
			kept = true
		case strings.Contains(command, "gh pr comment"):
			require.Contains(t, step["if"], "always()")
			require.Contains(t, command, "results/report.md")
			told = true
		}
	}
	require.True(t, gated && kept && told, "gate %t, artifact %t, comment %t", gated, kept, told)
}

func TestGitLabPipeline(t *testing.T) {
	docs := documents(t, "../../examples/ci/gitlab-ci.yml")
	require.Len(t, docs, 1)
	job := at(t, docs[0], "llm-gate")
	require.Equal(t, []string{"K6=./k6 sh ci/gate.sh tests/load/replay.js results"}, texts(t, at(t, job, "script")))
	require.NotContains(t, job, "allow_failure")
	require.Equal(t, "always", at(t, job, "artifacts", "when"))
	require.Equal(t, []string{"results/"}, texts(t, at(t, job, "artifacts", "paths")))
	require.Equal(t, "results/junit.xml", at(t, job, "artifacts", "reports", "junit"))
	require.Contains(t, texts(t, at(t, job, "after_script"))[0], "body@results/report.md")
	require.Equal(t, at(t, docs[0], "build-k6", "artifacts", "paths", 0), "k6")
	require.Equal(t, texts(t, at(t, docs[0], "stages")), []string{"build", "gate"})
}
