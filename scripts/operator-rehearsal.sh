#!/bin/sh
# Rehearses a k6-operator TestRun on one machine: starts N instances with the command line that the operator gives its
# runners, lets all of them load and wait, starts them together over the REST API as the operator's starter does, and
# checks that every row of the trace was offered exactly once. Then it merges the evidence, and its exit code is the
# merged verdict's. All traffic stays on 127.0.0.1.
#
#   scripts/operator-rehearsal.sh                                  4 instances, a simulated engine of its own
#   scripts/operator-rehearsal.sh --instances 3 --results out      3 instances, evidence in out/1, out/2, out/3
#   scripts/operator-rehearsal.sh --script archive.tar             what `k6 archive` made of a script
#   scripts/operator-rehearsal.sh --no-merge                       stop after the check of the rows
#
#   K6          the k6 binary                                      (default ./k6)
#   LLM_SERVER  a server on this machine to use instead, e.g. http://127.0.0.1:8000; nothing else is accepted
#   PORT        the first of N+1 ports on 127.0.0.1               (default 8320)
#   LIMIT       seconds after which everything is stopped          (default 900)
#   Every other variable reaches the script and the contract: WARMUP, STEADY, RECOVERY, TRACE, ...
#
# Exit codes: 0 PASS, 1 FAIL, 2 INCONCLUSIVE or INVALID, 3 wrong use; 4 an instance or a tool failed; 5 a row is missing
# or was offered twice. With --no-merge, 0 means that the rows are right.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
k6=${K6:-$root/k6}
port=${PORT:-8320}
limit=${LIMIT:-900}
instances=4
script=$root/examples/replay.js
results=
merge=1
name=safeqps

usage() { echo "operator-rehearsal: $1; see the head of $0" >&2; exit 3; }
while [ $# -gt 0 ]; do
	case "$1" in
	--instances) [ $# -gt 1 ] || usage "--instances needs a number"; instances=$2; shift 2 ;;
	--script) [ $# -gt 1 ] || usage "--script needs a path"; script=$2; shift 2 ;;
	--results) [ $# -gt 1 ] || usage "--results needs a directory"; results=$2; shift 2 ;;
	--no-merge) merge=0; shift ;;
	*) usage "got $1" ;;
	esac
done
case "$instances" in '' | *[!0-9]* | 0) usage "--instances: got '$instances', expected a number from 1" ;; esac
for tool in curl jq; do
	command -v "$tool" >/dev/null || { echo "operator-rehearsal: needs $tool" >&2; exit 4; }
done
[ -x "$k6" ] || { echo "operator-rehearsal: no k6 at $k6: run make build, or set K6" >&2; exit 4; }
case "${LLM_SERVER:-http://127.0.0.1:0}" in
http://127.0.0.1:* | http://localhost:*) ;;
*) usage "LLM_SERVER: got $LLM_SERVER, expected an address on 127.0.0.1" ;;
esac
if [ -z "$results" ]; then results=$(mktemp -d); fi
mkdir -p "$results/logs"

say() { printf 'operator-rehearsal: %s\n' "$*"; }
pids=
engine=
# shellcheck disable=SC2086,SC2317 # a list of ids; called by the trap
stop() {
	[ -z "$pids$engine" ] || kill $pids $engine 2>/dev/null || true
}
trap stop EXIT
trap 'exit 4' INT TERM

if [ -z "${LLM_SERVER:-}" ]; then
	LLM_SERVER=http://127.0.0.1:$port
	"$k6" x llm sim --listen "127.0.0.1:$port" --max-num-seqs 96 >"$results/logs/engine.log" 2>&1 &
	engine=$!
fi
LLM_BASE_URL=$LLM_SERVER/v1
export LLM_SERVER LLM_BASE_URL
if ! curl -sf --retry 50 --retry-delay 0 --retry-max-time 30 --retry-connrefused -o /dev/null "$LLM_SERVER/health"; then
	say "$LLM_SERVER/health does not answer" >&2
	exit 4
fi

# The operator: pkg/segmentation/segmentation.go.
fraction() {
	if [ "$1" -eq 0 ]; then echo 0; elif [ "$1" -eq "$instances" ]; then echo 1; else echo "$1/$instances"; fi
}
sequence=0
i=1
while [ "$i" -le "$instances" ]; do sequence="$sequence,$(fraction "$i")"; i=$((i + 1)); done

# The operator: pkg/resources/jobs/runner.go. Only the address differs: there each runner has a network of its own.
i=1
while [ "$i" -le "$instances" ]; do
	segment=
	if [ "$instances" -gt 1 ]; then
		segment="--execution-segment=$(fraction $((i - 1))):$(fraction "$i") --execution-segment-sequence=$sequence"
	fi
	# shellcheck disable=SC2086 # two arguments, or none
	"$k6" run --quiet $segment --out "llm=$results/$i" --no-thresholds --no-usage-report "$script" \
		"--address=127.0.0.1:$((port + i))" --paused --tag "instance_id=$i" --tag "testrun_name=$name" \
		>"$results/logs/$i.log" 2>&1 &
	pids="$pids $!"
	i=$((i + 1))
done

say "$instances instances are loading; evidence goes to $results"
starter=
i=1
for pid in $pids; do
	status=http://127.0.0.1:$((port + i))/v1/status
	tries=0
	until curl -sf -m 5 -o /dev/null "$status"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 600 ] || ! kill -0 "$pid" 2>/dev/null; then
			say "instance $i does not answer:" >&2
			cat "$results/logs/$i.log" >&2
			exit 4
		fi
		sleep 0.2
	done
	# The operator: pkg/resources/containers/curl_start.go.
	starter="$starter curl --retry 3 -X PATCH -H 'Content-Type: application/json' $status"
	starter="$starter -d '{\"data\":{\"attributes\":{\"paused\":false,\"stopped\":false},\"id\":\"default\",\"type\":\"status\"}}' -s -o /dev/null;"
	i=$((i + 1))
done
say "all are ready and paused; starting them"
sh -c "$starter"

# kill ends the watchdog's sleep with it: both are in the list.
watched=$pids
# shellcheck disable=SC2086 # a list of ids
(sleep "$limit" & echo $! >"$results/logs/watchdog.pid"; wait $! && { say "stopped after $limit s" >&2; kill $watched; }) &
watchdog=$!
failed=0
i=1
for pid in $watched; do
	code=0
	wait "$pid" || code=$?
	if [ "$code" -ne 0 ]; then
		failed=1
		say "instance $i ended with exit code $code:" >&2
		tail -n 20 "$results/logs/$i.log" >&2
	fi
	i=$((i + 1))
done
pids=
kill "$watchdog" "$(cat "$results/logs/watchdog.pid")" 2>/dev/null || true
wait "$watchdog" 2>/dev/null || true
[ "$failed" = 0 ] || exit 4

# Each arrival has one line of a first attempt, a dropped one too. Rows begin at 0, so the highest tells how many.
rows=$(i=1; while [ "$i" -le "$instances" ]; do cat "$results/$i/requests.jsonl"; i=$((i + 1)); done |
	jq -s '[.[] | select((.attempt // 1) == 1) | .row] | {arrivals: length, distinct: (unique | length), rows: ((max // -1) + 1)}')
say "rows: $(printf '%s' "$rows" | jq -r '"\(.arrivals) arrivals, \(.distinct) distinct rows, of \(.rows)"')"
i=1
while [ "$i" -le "$instances" ]; do
	say "instance $i offered $(jq -s '[.[] | select((.attempt // 1) == 1)] | length' "$results/$i/requests.jsonl")"
	i=$((i + 1))
done
if ! printf '%s' "$rows" | jq -e '.arrivals > 0 and .arrivals == .distinct and .distinct == .rows' >/dev/null; then
	say "a row is missing or was offered twice" >&2
	exit 5
fi
[ "$merge" = 1 ] || exit 0

set --
i=1
while [ "$i" -le "$instances" ]; do set -- "$@" "$results/$i"; i=$((i + 1)); done
code=0
"$k6" x llm merge "$@" --out "$results/merged" || code=$?
exit "$code"
