#!/usr/bin/env bash
# From nothing to predicted beside measured: installs what is missing, builds, then plans the training of a real
# model on a real machine's description and on this machine, simulates it, trains it for real on this machine's
# processors under mpirun, and prints predicted beside measured. Second runs are quick.
set -euo pipefail
cd "$(dirname "$0")"
say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

say "Installing what is missing and building (first time: some minutes)"
scripts/install.sh build
targets=(orrery orrery-exec-openmpi)
# With CUDA's part where there is a GPU, and the toolkit to compile it.
if [ -e /dev/nvidiactl ] && PATH="$PATH:/usr/local/cuda/bin" command -v nvcc >/dev/null; then
  targets+=(orrery-exec-openmpi-cuda)
fi
scripts/build.sh release "${targets[@]}"
export PATH="$PWD/build/release/bin:$PATH"
out=build/demo
mkdir -p "$out"

say "What would it take to train GPT-3 175B on 1,024 A100?"
run orrery plan gpt3-175b dgx-a100 --nodes 128 --global-batch 1536 --seq-len 2048 --precision bf16 --top 5 \
  --out "$out/gpt3.textproto"

say "One step of that plan in virtual time, with a trace for https://ui.perfetto.dev"
run orrery simulate "$out/gpt3.textproto" --trace "$out/gpt3-trace.json"

say "Now this machine: measure its cores, memory and MPI (kept in ${ORRERY_DATA_DIR:-~/.local/share/orrery})"
run orrery calibrate

say "Plan GPT-2 (124 M parameters) here, from its Hugging Face config.json"
run orrery plan tests/data/huggingface/gpt2.json localhost --gpus 2 --global-batch 4 --seq-len 64 \
  --optimizer adamw --top 4 --out "$out/local.textproto"
run orrery simulate "$out/local.textproto"

say "Train it for real under mpirun, on the text of the GPL"
run orrery run "$out/local.textproto" --steps 5 --trace "$out/local-trace.json"

say "Predicted beside measured, kind by kind"
run orrery validate "$out/local.textproto" --steps 5

say "The same through two pipeline stages"
run orrery plan tests/data/huggingface/gpt2.json localhost --gpus 2 --pp 2 --tp 1 --micro-batch 1 \
  --schedule 1f1b --global-batch 4 --seq-len 64 --optimizer adamw --out "$out/pipeline.textproto"
run orrery validate "$out/pipeline.textproto" --steps 5
