#!/usr/bin/env bash
# scripts/fuzz.sh [SECONDS] [TARGET…]: every parser of foreign input under libFuzzer with AddressSanitizer and UBSan, for
# SECONDS each (default 120: 75 minutes in all), on one core; then files and arguments of every verb, mutated, against
# build/release's program (tests/fuzz/verbs.py). TARGET: only these ("verbs" is the last part; no name: all). What was
# found before is tried first: build/fuzz/corpus/TARGET, kept from run to run. Stops at the first fault, whose input it names.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-120}
[ $# -eq 0 ] || shift
wanted=("$@")
rooms=(networks clusters settings measured executor)
build=build/fuzz
log=$(mktemp)
trap 'rm -f "$log"' EXIT
say() { printf '\n\033[1m== %s\033[0m (%s s)\n' "$*" "$SECONDS"; }
is_wanted() { [ ${#wanted[@]} -eq 0 ] || [[ " ${wanted[*]} " == *" $1 "* ]]; }

command -v clang++-16 >/dev/null || scripts/install.sh
if [ ! -f "$build/build.ninja" ]; then
  cmake --preset tidy -B "$build" -DORRERY_FUZZ=ON -DORRERY_SANITIZE=address,undefined,fuzzer-no-link -DORRERY_MPI=OFF \
    -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=40 \
    -DCMAKE_CXX_CLANG_TIDY= -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" >"$log" || { cat "$log" >&2; exit 1; }
fi
# What a target may keep: reports of leaks cost a tenth of the time, and the tests under ASan have them.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=0 UBSAN_OPTIONS=print_stacktrace=1
for room in "${rooms[@]}"; do
  # A room is built when one of its targets is wanted; which those are, only its program knows.
  ninja -C "$build" "fuzz_$room" >"$log" || { cat "$log" >&2; exit 1; }
  for target in $("$build/bin/fuzz_$room"); do
    is_wanted "$target" || continue
    say "$target"
    corpus=$build/corpus/$target
    mkdir -p "$corpus" "$build/seeds/$target"
    ORRERY_FUZZ_TARGET=$target ORRERY_FUZZ_SEEDS=$build/seeds/$target "$build/bin/fuzz_$room"
    ORRERY_FUZZ_TARGET=$target nice -n 5 "$build/bin/fuzz_$room" "$corpus" "$build/seeds/$target" -max_total_time="$seconds" \
 -timeout=60 -rss_limit_mb=4096 -use_value_profile=1 -print_final_stats=1 -verbosity=0 \
      -artifact_prefix="$build/found-$target-" 2>"$log" >/dev/null || { tail -60 "$log" >&2; exit 1; }
    grep -E 'number_of_executed_units|peak_rss' "$log"
  done
done
if is_wanted verbs; then
  say "verbs"
  ORRERY=$PWD/build/release/bin/orrery nice -n 19 python3 -B tests/fuzz/verbs.py "$((10 * seconds))"
fi
say "Done"
