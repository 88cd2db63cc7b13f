#!/usr/bin/env bash
# scripts/build.sh PRESET [TARGET…]: configures once, builds what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
export PATH="$PATH:/usr/local/cuda/bin"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" >"$log" 2>&1; then
  tail -30 "$log" >&2
  exit 1
fi
ninja -C "build/$preset" "$@" | tail -n 1
exit "${PIPESTATUS[0]}"
