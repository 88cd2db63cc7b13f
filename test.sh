#!/usr/bin/env bash
# Everything demo.sh does, then every test: the release build's, and the unit tests again under
# AddressSanitizer and UBSan. With CI=true nothing may be skipped but what needs a GPU (those exit 77 and say why).
set -euo pipefail
cd "$(dirname "$0")"
say() { printf '\n\033[1m== %s\033[0m (%s s)\n' "$*" "$SECONDS"; }

say "demo.sh"
./demo.sh

say "Building everything"
scripts/build.sh release

say "Formatting"
scripts/check_format.sh

say "All tests"
ctest --test-dir build/release -j2 --output-on-failure --no-tests=error

say "Unit tests under sanitizers"
scripts/build.sh asan test_base test_topologies test_workloads test_program test_sim test_planner test_exec test_fuzz
ctest --test-dir build/asan -j2 -R '^(base|topologies|workloads|program|sim|planner|exec|fuzz):' --output-on-failure \
  --no-tests=error
say "Done"
