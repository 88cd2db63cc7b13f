#!/bin/sh
# Fits every runtime profile to the published steps of its framework, and prints beside the fit the error with
# each model and each source left out (docs/accuracy.md holds the output).
#
#   bench/fit_runtimes.sh build/release/bin/fit_runtime ../shared/published/steps
set -eu
fit=$1
steps=$2
run() {
  runtime=$1
  shift
  echo "== $runtime"
  "$fit" "$runtime" --leave-out "$@"
}
run megatron-lm-2022 --every 1 fit:launch=8e-6 fit:matmul=0.96 memory=1 \
  "$steps/korthikanti_2022_seqpar_selective.csv" "$steps/bigscience_v100_sweeps.csv"
run megatron-deepspeed --every 9 matmul=1 memory=1 fit:launch=5.1e-5 fit:communication=0.55 fit:collective=1.8e-4 \
  "$steps/vtrain_ground_truth.csv" "$steps/bigscience_bloom_a100_sweeps.csv" "$steps/amp_t4_v100_trials.csv"
run llm-foundry-fsdp --every 3 fit:launch=8.6e-6 fit:matmul=0.94 fit:attention=0.53 memory=0.94 \
  "$steps/llm_foundry_mpt_training.csv"
run nemo --every 8 launch=8e-6 fit:matmul=1.03 fit:memory=0.9 fit:attention=0.73 communication=1.2 \
  "$steps/dgxc_benchmarking_step_times.csv" "$steps/nemo_2407_h100_fp8_perf.csv" \
  "$steps/nemo_megatron_bridge_perf.csv" "$steps/nemo_automodel_perf.csv"
run megatron-core --every 1 launch=3e-6 fit:matmul=1.05 memory=1 "$steps/nemo_megatron_bridge_perf.csv"
run jax --every 1 fit:matmul=1.06 fit:memory=0.58 "$steps/dgxc_benchmarking_step_times.csv" "$steps/alpa_example.csv"
run torchtitan --every 1 launch=1.4e-5 memory=1 fit:matmul=0.83 fit:attention=0.38 "$steps/torchtitan.csv"
run no-overlap --every 1 launch=1.2e-5 fit:memory=0.25 fit:attention=0.84 "$steps/simumax_b200_training.csv"
