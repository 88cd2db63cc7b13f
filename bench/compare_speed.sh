#!/usr/bin/env bash
# Ten strategies on 64 devices under four troubles, from process start to answer: seconds of the clock and of the processors,
# and the verdict. Two quiet cores are what the limit is meant for.
#   bench/compare_speed.sh [ORRERY]
set -euo pipefail
cd "$(dirname "$0")/.."
orrery=${1:-build/release/bin/orrery}
TIMEFORMAT='  %R s, %U s of the processors'

ask() {
  local limit=$1
  shift
  echo "orrery compare $* (limit ${limit} s)"
  time "$orrery" compare "$@" | grep 'Best way: ' | cut -c1-120 | sed 's/^/  /'
}

troubles=lognormal=0.2,slow-device=3:0.5,dies=worker:9@1000,neighbour=1:0.5
ask 5 resnet50 dgx-v100-32g --nodes 8 --global-batch 4096 --trouble "$troubles"
ask 5 resnet50 dgx-v100-32g --nodes 8 --global-batch 4096 --trouble "$troubles" --stages 8
ask 5 gpt2 dgx-a100 --nodes 8 --global-batch 512 --seq-len 512 --trouble "$troubles"
