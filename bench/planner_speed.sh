#!/usr/bin/env bash
# Questions to the planner, each from process start to answer: seconds of the clock and of the
# processors, and the last line of the answer. Two quiet cores are what the limits are meant for.
#   bench/planner_speed.sh [ORRERY]
set -euo pipefail
cd "$(dirname "$0")/.."
orrery=${1:-build/release/bin/orrery}

ask() {
  local limit=$1
  shift
  echo "orrery plan $* (limit ${limit} s)"
  TIMEFORMAT='  %R s, %U s of the processors'
  time "$orrery" plan "$@" | tail -1 | sed 's/^/  /'
}

ask 1.5 gpt3-175b dgx-a100 --nodes 128 --global-batch 1536 --seq-len 2048 --precision bf16
ask 5 llama3-405b dgx-h100 --nodes 2048 --global-batch 2048 --seq-len 8192 --precision bf16
for batch in 1024 2048 4096; do
  ask 5 deepseek-v3 dgx-h100 --nodes 256 --global-batch "$batch" --seq-len 4096 --precision bf16
done
ask 0.3 gpt2 localhost --gpus 2 --global-batch 8 --seq-len 128
