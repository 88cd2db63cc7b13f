#!/usr/bin/env bash
# errors.sh MPI EXECUTOR: what is the user's mistake is one line on stderr, from one rank, and exit code 2.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
faults=0
expect() {  # pattern, arguments…
  local pattern=$1 out code
  shift
  out=$("$here/mpirun.sh" "$@" 2>&1 >/dev/null)
  code=$?
  if [ $code -ne 2 ] || [ "$(grep -c '^orrery: ' <<<"$out")" -ne 1 ] || ! grep -q "$pattern" <<<"$out"; then
    printf 'wanted exit code 2 and one line with "%s" from %s; got %s:\n%s\n' "$pattern" "$*" "$code" "$out"
    faults=1
  fi
}
expect "cannot be opened" "$1" 2 "$2" run /nonexistent
expect "plan" "$1" 1 "$2" run
expect "fewer" "$1" 1 "$2" run /nonexistent --fewer
exit $faults
