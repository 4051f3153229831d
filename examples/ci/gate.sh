#!/bin/sh
# Runs a script, judges it by its contract, and ends with the verdict: a build step that is red where the service does
# not keep its SLO.
#
#   examples/ci/gate.sh SCRIPT [RESULTS]        RESULTS: the directory for the evidence, default ./results
#
#   K6                  the k6 binary with this extension                    (default k6)
#   K6_ARGS             further arguments for `k6 run`, in words             (e.g. "-e RATE=8")
#   CONTRACT            judge by this contract instead of the script's own
#   ALLOW_INCONCLUSIVE  1: too little evidence (INCONCLUSIVE) is no failure. INVALID stays one.
#
# Exit codes: 0 PASS, 1 FAIL or a crossed threshold of the script's own, 2 INCONCLUSIVE or INVALID, 3 wrong use, 4 the run
# itself broke (script error, ...). On GitHub Actions the verdict becomes annotations and the job's summary. RESULTS/report.html
# is the page with all charts.
set -u

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
	echo "usage: gate.sh SCRIPT [RESULTS]" >&2
	exit 3
fi
k6=${K6:-k6}
script=$1
results=${2:-results}

# Before the test, not after it.
if [ -n "${CONTRACT:-}" ]; then "$k6" x llm gate check "$CONTRACT" >/dev/null || exit 3; fi

run=0
# shellcheck disable=SC2086 # words
"$k6" run --quiet --no-usage-report --out "llm=$results" ${K6_ARGS:-} "$script" || run=$?
# 99: a threshold was crossed, or the contract's abort rules ended the run. What that means, the verdict says.
if [ "$run" -ne 0 ] && [ "$run" -ne 99 ]; then
	echo "gate.sh: k6 run ended with exit code $run: there is nothing to judge" >&2
	exit 4
fi

set -- "$results"
if [ -n "${CONTRACT:-}" ]; then set -- "$@" --contract "$CONTRACT"; fi
if [ "${GITHUB_ACTIONS:-}" = true ]; then set -- "$@" --github; fi
code=0
"$k6" x llm gate verdict "$@" || code=$?
if [ "$code" -gt 2 ]; then exit "$code"; fi

if ! "$k6" x llm report "$results"; then
	echo "gate.sh: the page could not be drawn: there is no $results/report.html. The verdict stands" >&2
fi
if [ -n "${GITHUB_STEP_SUMMARY:-}" ] && [ -f "$results/report.md" ]; then
	cat "$results/report.md" >>"$GITHUB_STEP_SUMMARY"
fi

# The line of the whole run; those of its criteria stand deeper.
verdict=$(sed -n 's/^  "verdict": "\(.*\)".*/\1/p' "$results/verdict.json")
if [ "$verdict" = INCONCLUSIVE ] && [ "${ALLOW_INCONCLUSIVE:-}" = 1 ]; then
	echo "gate.sh: INCONCLUSIVE is allowed here: this run proves nothing, and blocks nothing"
	code=0
fi
# The verdict is on the contract alone. What else the script asks of k6 is red as well.
if [ "$code" -eq 0 ] && [ "$run" -eq 99 ]; then
	if grep -q '^      "own": true' "$results/verdict.json"; then
		echo "gate.sh: the contract's verdict is $verdict, but thresholds of the script's own were crossed: the warnings of the verdict name them" >&2
		code=1
	elif grep -q '^      "own": false' "$results/verdict.json"; then
		echo "gate.sh: k6 ended with 99 for thresholds that a contract asks for. They compare point estimates; the verdict weighs the evidence, and decides"
	else
		echo "gate.sh: the contract's verdict is $verdict, but k6 ended with 99, and the evidence does not say for which threshold" >&2
		code=1
	fi
fi
exit "$code"
