#!/usr/bin/env bash
# scripts/build.sh PRESET [TARGET…]: configures once, builds what changed. With CI=true a room's files are compiled a
# dozen at a time (cmake/OrreryUnity.cmake): quicker from nothing, slower to change.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
export PATH="$PATH:/usr/local/cuda/bin"
unity=()
[ "${CI:-}" != true ] || unity=(-DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=12)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" "${unity[@]}" >"$log" 2>&1; then
  tail -30 "$log" >&2
  exit 1
fi
if ! ninja -C "build/$preset" "$@" >"$log" 2>&1; then
  grep -A 20 -m 3 '^FAILED' "$log" >&2 || tail -30 "$log" >&2
  exit 1
fi
tail -n 1 "$log"
