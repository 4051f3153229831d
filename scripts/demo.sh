#!/usr/bin/env bash
# The main job, end to end: search for the Safe QPS of the simulated engine under a slice of a trace, and plan with it.
set -euo pipefail
cd "$(dirname "$0")/.."

address=127.0.0.1:${PORT:-8765}
results=results/demo-$(date +%Y%m%d-%H%M%S)
mkdir -p "$results"

# Ten minutes of a real public trace where there is one beside the repository, else the sample that `trace generate` made.
trace=../shared/traces/azure2023_conv.csv
slice=$results/slice.jsonl
if [ -f "$trace" ]; then
  echo "Workload: ten minutes of the Azure LLM inference trace 2023 (conversation; Azure Public Dataset, CC-BY-4.0), rescaled in time."
  ./k6 x llm trace convert "$trace" --window 5m:15m --out "$slice" 2>/dev/null
else
  echo "Workload: examples/sample-trace.jsonl, synthetic, with lengths as published for the Azure trace of 2023, rescaled in time."
  cp examples/sample-trace.jsonl "$slice"
fi

./k6 x llm sim --listen "$address" --max-num-seqs 32 --num-blocks 32768 --max-num-batched-tokens 8192 \
  --step-per-prefill-token 8us --step-per-sequence 60us >/dev/null &
engine=$!
trap 'kill "$engine" 2>/dev/null || true; wait "$engine" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  (exec 3<>"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null && break
  sleep 0.1
done

export LLM_SERVER="http://$address" LLM_BASE_URL="http://$address/v1" TRACE="$PWD/$slice"
export WARMUP=3s STEADY="${STEADY:-20s}" RECOVERY=1s
echo "Searching the highest rate at which examples/capacity.yaml holds: three minutes at most."
status=0
./k6 x llm capacity --script examples/capacity.js --contract examples/capacity.yaml --out "$results" \
  --min 4 --max 32 --tolerance 25% --max-time 170s || status=$?
case $status in
  0 | 1 | 2) ;; # each is an answer
  *) exit "$status" ;;
esac
if grep -q '"safe_qps": null' "$results/capacity.json"; then
  echo "No rate was found: on a busy machine the load generator itself is the bottleneck. Try again when it has less to do."
  exit 0
fi

echo
go run ./scripts/percentiles "$results"

echo
echo "What a peak of 100 requests/s would take, with one replica to spare and a fifth of headroom:"
./k6 x llm plan "$results" --rate 100 --gpu-hour-price 2.5 || true # exit code 2: the rate was not confirmed

cat <<END

Next: open $results/report.html in a browser; examples/capacity.js and examples/capacity.yaml are what ran.
Against a service of yours: LLM_BASE_URL=https://…/v1 LLM_SERVER=https://… ./k6 x llm capacity …, as docs/tutorial.md shows.
END
