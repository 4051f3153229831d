#!/usr/bin/env bash
# Type-checks the examples against index.d.ts, and what it must accept (tools/types/accepted.ts) and refuse (refused.ts). Needs npm; without it the check is left out, and says so.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v npm >/dev/null 2>&1; then
  echo "check-types: npm is not installed, so index.d.ts was not checked"
  exit 0
fi
cd tools/types
[ -d node_modules ] || npm ci --no-audit --no-fund --silent
npx --no-install tsc --project tsconfig.json
echo "check-types: index.d.ts and the examples agree"
