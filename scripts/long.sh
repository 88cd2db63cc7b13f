#!/usr/bin/env bash
# scripts/long.sh [SECONDS]: what CI has no time for, some hours of it. All tests and those marked [.long], every room under
# AddressSanitizer and UBSan, the rooms with threads under ThreadSanitizer, and scripts/fuzz.sh: every parser of foreign input for SECONDS each
# (default 120: an hour and a half in all). Stops at the first fault.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-120}
say() { printf '\n\033[1m== %s\033[0m (%s s)\n' "$*" "$SECONDS"; }

say "Everything, and every room under sanitizers"
SANITIZE=all ./test.sh

say "Long tests"
for program in build/release/bin/test_*; do
  # Those of MPI and the GPU have a main of their own.
  "$program" --list-test-names-only '[.long]' >/tmp/orrery-long.$$ 2>/dev/null || true
  if [ -s /tmp/orrery-long.$$ ] && [[ $program != *test_exec_* ]]; then "$program" '[.long]'; fi
done
rm -f /tmp/orrery-long.$$

say "ThreadSanitizer: base, serve, orrery"
scripts/build.sh tsan test_base test_serve test_orrery
ctest --test-dir build/tsan -j2 -L unit -R '^(base|serve|orrery):' --output-on-failure --no-tests=error

say "Fuzzing, $seconds s a parser"
scripts/fuzz.sh "$seconds"
say "Done"
