#!/usr/bin/env bash
# scripts/long.sh [SECONDS]: what CI has no time for, some hours of it. All tests and those marked [.long], every room under
# AddressSanitizer and UBSan, the rooms with threads under ThreadSanitizer, and libFuzzer on every parser of foreign files, for SECONDS each
# (default 450: an hour for eight). Stops at the first fault.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-450}
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

say "libFuzzer, $seconds s a parser"
command -v clang++-16 >/dev/null || apt-get install -y --no-install-recommends clang-16 libclang-rt-16-dev
cmake --preset tidy -B build/fuzz -DORRERY_FUZZ=ON -DORRERY_SANITIZE=address,undefined -DCMAKE_CXX_CLANG_TIDY= >/dev/null
targets=$(ninja -C build/fuzz -t targets all | sed -n 's/^\(fuzz_[a-z]*\): phony$/\1/p' | sort -u)
# shellcheck disable=SC2086
ninja -C build/fuzz $targets
for target in $targets; do
  say "$target"
  mkdir -p "build/fuzz/corpus/$target"
  "build/fuzz/bin/$target" -max_total_time="$seconds" -rss_limit_mb=4096 -print_final_stats=1 "build/fuzz/corpus/$target"
done
say "Done"
