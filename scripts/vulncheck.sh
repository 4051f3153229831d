#!/usr/bin/env bash
# Looks for known vulnerabilities in what the binary calls. Needs the vulnerability database; where that can not be
# reached the check is left out, and says so. Usage: vulncheck.sh PATH-OF-GOVULNCHECK
set -euo pipefail
cd "$(dirname "$0")/.."

if ! out="$("$1" ./... 2>&1)"; then
  if grep -qE 'fetching vulnerabilities|dial tcp|no such host|connection refused|403|Forbidden|proxyconnect' <<<"$out"; then
    echo "vulncheck: the vulnerability database can not be reached, so nothing was checked"
    exit 0
  fi
  echo "$out"
  exit 1
fi
echo "$out"
