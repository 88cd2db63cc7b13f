#!/usr/bin/env bash
# Everything demo.sh does, then every test: the release build's, and the unit tests again under AddressSanitizer and UBSan.
# With CI=true nothing may be skipped but what needs a GPU (those exit 77 and say why); what runs under sanitizers is not run
# without them too, nor what is labelled `long`. SANITIZE=all: every folder under sanitizers, and all tests.
set -euo pipefail
cd "$(dirname "$0")"
say() { printf '\n\033[1m== %s\033[0m (%s s)\n' "$*" "$SECONDS"; }

# One more than there are cores: many tests wait for the programs that they started.
jobs=$(($(nproc) + 1))
code=0
tests() { ctest --test-dir build/release -j"$jobs" --output-on-failure --no-tests=error "$@" || code=$?; }

# start COMMAND…: beside what follows, as a process group that ends with this script; its number is $started.
groups=()
start() {
  set -m
  "$@" &
  set +m
  started=$!
  groups+=("$started")
}
hosts=$(mktemp)
packages=$(mktemp)
installed=''
end_all() {
  [ -z "$installed" ] || wait "$installed" || true  # never in the middle of a package
  for group in "${groups[@]}"; do kill -- -"$group" 2>/dev/null || true; done
  rm -f "$hosts" "$packages"
}
trap end_all EXIT

say "Installing what is missing: first what is built from, then beside the build what tests need"
scripts/install.sh build
scripts/install.sh >"$packages" 2>&1 &
installed=$!

say "demo.sh"
./demo.sh
wait "$installed" || { code=$?; installed=''; cat "$packages" >&2; exit "$code"; }
installed=''
cat "$packages"

# The planner's take as long to build as all others together, the emulated CUDA's a minute and a half more:
# SANITIZE=all adds them (what kernels read and write out of bounds shows there).
folders=(base topologies workloads program cost sim exec fuzz)
more=()
[ "${SANITIZE:-}" != all ] || { folders+=(planner request handover evidence orrery rehearsal); more=(test_exec_cuda_emulated); }
# All but the executor's, whose arithmetic is held to its references as it is released.
apart=()
long=()
if [ "${CI:-}" = true ] && [ "${SANITIZE:-}" != all ]; then
  apart=(base topologies workloads program cost sim fuzz)
  long=(-LE '^long$')
  export ORRERY_SHORT=1  # long grids (tests/support/walked.h)
else
  folders+=(fuzz_foreign)  # needs most of the product; CI mutates those files without sanitizers
fi

# These wait more than they compute (for a host that fell silent, seconds each time), for what demo.sh has built. What they
# leave of the processors builds the rest, behind them, once ctest has read what there is.
say "Building everything, behind hosts in network namespaces"
of_hosts() { tests -L '^cluster$' -LE '^alone$' --output-junit cluster.xml >"$hosts" 2>&1; return "$code"; }
start of_hosts
namespaces=$started
until grep -q Start "$hosts" || ! kill -0 "$namespaces" 2>/dev/null; do sleep 0.1; done
ORRERY_TESTED_APART=$(IFS=';'; echo "${apart[*]}") chrt --idle 0 scripts/build.sh release

say "Formatting"
scripts/check_format.sh

say "Hosts in network namespaces, whose steps are held to what is predicted"
wait "$namespaces" || code=$?
cat "$hosts"
say "Tests that need the machine for themselves"
tests -L '^alone$' "${long[@]}" --output-junit alone.xml

# What the others leave of the processors compiles those under sanitizers, behind everything.
start chrt --idle 0 scripts/build.sh asan "${folders[@]/#/test_}" "${more[@]}"
build=$started
say "All other tests"
# Ranks that wait for each other leave their cores to the tests beside them (exec/mpi/mpi_transport.cc).
OMPI_MCA_mpi_yield_when_idle=1 tests -LE '^(alone|cluster)$' --output-junit tests.xml
scripts/print_shares.py build/release/{alone,cluster,tests}.xml || true  # also of tests that failed
[ "$code" -eq 0 ] || exit "$code"

say "Building what is tested under sanitizers, as far as that is left"
wait "$build"
say "Unit tests under sanitizers: ${folders[*]} ${more[*]}"
export PATH="$PATH:/usr/lib/llvm-16/bin"  # what names lines in a report
ctest --test-dir build/asan -j"$jobs" -L "unit${more:+|emulated}" -R "^($(IFS='|'; echo "${folders[*]}")):" \
  --output-on-failure --no-tests=error
say "Done"
