#!/usr/bin/env bash
# The main job, end to end: replay a trace against the simulated engine, open loop, and judge it by a contract.
set -euo pipefail
cd "$(dirname "$0")/.."

address=127.0.0.1:${PORT:-8765}
results=results/demo-$(date +%Y%m%d-%H%M%S)

# A slice of a real public trace where there is one beside the repository, else the sample that `trace generate` made.
trace=../shared/traces/azure2023_conv.csv
if [ -f "$trace" ]; then
  echo "Replaying a slice of the Azure LLM inference trace 2023 (conversation; Azure Public Dataset, CC-BY-4.0), 4 times as fast."
  export TRACE="$PWD/$trace" SPEED=4
else
  export SPEED=3
  echo "Replaying examples/sample-trace.jsonl: synthetic, with lengths as published for the Azure trace of 2023, 3 times as fast."
fi

./k6 x llm sim --listen "$address" --max-num-seqs 128 --num-blocks 32768 --max-num-batched-tokens 8192 \
  --step-per-prefill-token 8us --step-per-sequence 60us >/dev/null &
engine=$!
trap 'kill "$engine" 2>/dev/null || true; wait "$engine" 2>/dev/null || true' EXIT
for _ in $(seq 100); do
  (exec 3<>"/dev/tcp/${address%:*}/${address#*:}") 2>/dev/null && break
  sleep 0.1
done

mkdir -p results
export LLM_SERVER="http://$address" LLM_BASE_URL="http://$address/v1" STEADY="${STEADY:-90s}"
status=0
./k6 run --quiet --address "" --no-usage-report --out "llm=$results" examples/replay.js || status=$?

echo
if [ -d "$results" ]; then
  echo "The evidence is in $results; the page to read: $(./k6 x llm report "$results")"
fi
case $status in
  0 | 99) ;; # 99: a threshold was crossed, which is an answer too
  *) exit "$status" ;;
esac
