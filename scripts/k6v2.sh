#!/bin/sh
# Builds and tests this extension for k6 v2: a copy of the sources, in a module of its own, with the import path
# go.k6.io/k6 rewritten to go.k6.io/k6/v2. Nothing else differs, and this script is what holds the sources to that.
#
#   scripts/k6v2.sh            copy, rewrite, build, run smoke.test.js, vet and test the packages that know k6
#   scripts/k6v2.sh --build    without the tests
#
#   K6_V2_VERSION   the version of k6 v2            (default v2.2.0)
#   K6_V2_DIR       where the copy is made          (default bin/k6v2)
#   K6_V2_REQUIRED  1: fail where it cannot be downloaded
#
# Exit codes: 0 built and tested, or k6 v2 cannot be downloaded here (it says so); 1 something does not build or fails
# its tests; 3 wrong use; 69 cannot be downloaded and K6_V2_REQUIRED=1.
set -eu

version=${K6_V2_VERSION:-v2.2.0}
root=$(cd "$(dirname "$0")/.." && pwd)
dir=${K6_V2_DIR:-$root/bin/k6v2}
go=${GO:-go}
tests=1

case "${1:-}" in
"") ;;
--build) tests=0 ;;
*)
	echo "k6v2: got $1, expected nothing or --build" >&2
	exit 3
	;;
esac

say() { printf 'k6v2: %s\n' "$*"; }

cannot_download() {
	say "k6 $version cannot be downloaded here, so nothing was built:"
	sed 's/^/  /' "$1"
	if [ "${K6_V2_REQUIRED:-0}" = 1 ]; then exit 69; fi
	exit 0
}

mkdir -p "$dir"
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# A directory without go.mod: what is asked for must not depend on the requirements of this module.
if ! (cd "$dir" && rm -f go.mod go.sum && GOFLAGS=-mod=mod GOWORK=off "$go" mod download "go.k6.io/k6/v2@$version") >"$log" 2>&1; then
	cannot_download "$log"
fi

say "copying the sources to $dir"
find "$dir" -mindepth 1 -maxdepth 1 -exec rm -rf {} +
(cd "$root" && tar -cf - --exclude=./bin --exclude=./k6 --exclude=./k6.exe --exclude=./results --exclude=./.git \
	--exclude=./tools --exclude=node_modules .) | tar -xf - -C "$dir"

say "rewriting go.k6.io/k6 to go.k6.io/k6/v2"
find "$dir" -name '*.go' -exec sed -i -E 's#"go\.k6\.io/k6(/|")#"go.k6.io/k6/v2\1#g' {} +

cd "$dir"
export GOWORK=off
"$go" mod edit -droprequire=go.k6.io/k6 -require="go.k6.io/k6/v2@$version"
if ! "$go" mod tidy >"$log" 2>&1; then
	# A module that is missing is a download; anything else is ours.
	if grep -qE 'dial tcp|no such host|proxyconnect|i/o timeout|403 Forbidden|404 Not Found|unrecognized import path' "$log"; then
		cannot_download "$log"
	fi
	sed 's/^/  /' "$log"
	say "go mod tidy failed"
	exit 1
fi

say "building $dir/k6"
"$go" build -trimpath -o k6 ./cmd/k6
./k6 version
if [ -f smoke.test.js ]; then
	./k6 run --quiet --no-usage-report --address '' smoke.test.js
fi
if [ "$tests" = 0 ]; then exit 0; fi

# The packages below llm/, trace/ and gate/ do not know k6, and are tested where they live.
bindings="./ ./cmd/k6 ./cli ./llm ./trace ./gate"
say "vetting and testing $bindings"
# shellcheck disable=SC2086 # a list of words
"$go" vet $bindings
# shellcheck disable=SC2086
"$go" test -short -timeout 15m $bindings
say "k6 $version: built, vetted, tested"
