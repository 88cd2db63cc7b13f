#!/usr/bin/env bash
# scripts/build.sh PRESET [TARGET…]: configures once, builds what changed. Silent but for the last line; of a build that
# fails, what failed and its exit code. ORRERY_TESTED_APART: folders whose unit tests are not built (tests/CMakeLists.txt).
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
export PATH="$PATH:/usr/local/cuda/bin"
# What was never compiled is not preprocessed first, to look it up.
export CCACHE_DEPEND=1
# Where no GPU will run them, kernels are compiled for one kind, and as quickly as can be: they are emulated in the tests.
options=()
[ "${CI:-}" != true ] || options=(-DORRERY_CUDA_ARCHITECTURES=90-real)
[ "${CI:-}" != true ] || [ -e /dev/nvidiactl ] || options+=(-DCMAKE_CUDA_FLAGS=--Ofast-compile=max)
[ -z "${ORRERY_TESTED_APART+set}" ] || options+=("-DORRERY_TESTED_APART=$ORRERY_TESTED_APART")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
cmake --preset "$preset" "${options[@]}" >"$log" 2>&1 || code=$?
if [ "$code" -ne 0 ]; then
  tail -30 "$log" >&2
  exit "$code"
fi
code=0
ninja -C "build/$preset" "$@" >"$log" 2>&1 || code=$?
if [ "$code" -ne 0 ]; then
  # All that the first three that failed said: until ninja's next line of progress, however long.
  awk '/^\[[0-9]+\/[0-9]+\] / || /^ninja: / {on = 0} /^FAILED/ {on = ++n <= 3} on' "$log" >&2
  grep -q '^FAILED' "$log" || tail -30 "$log" >&2
  exit "$code"
fi
tail -n 1 "$log"
