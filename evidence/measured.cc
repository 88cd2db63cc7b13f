// What a row of a table of training steps has measured, in seconds of a step.
#include <fmt/format.h>

#include <cmath>

#include "evidence/steps.h"
#include "proto/evidence.pb.h"

namespace orrery::evidence {
namespace {

// Assumed::widens of FLOP/s whose way of counting is not known: of attention's half, the head and the
// embedding under a tenth is in doubt, of recomputation a quarter.
constexpr double kUnknownCountWidens = 0.08;
constexpr double kUnknownRecomputationWidens = 0.15;

// FLOPs of a sequence with the backward twice the forward and attention's whole square; `recomputed`: with
// the layers' forward once more, as Narayanan et al. (SC 2021, equation 3) count them.
double counted_flops(const Workload& workload, int seq_len, bool recomputed) {
  double forward = workload.forward_flops_per_sample(seq_len);
  for (const Operator& op : workload.operators) {
    if (!op.attention || !op.attention->causal) continue;
    const AttentionShape& shape = *op.attention;
    forward += static_cast<double>(seq_len) * seq_len * shape.heads * (shape.qk_head_dim + shape.v_head_dim);
  }
  if (!recomputed) return 3 * forward;
  const double head = workload.transformer ? 2.0 * seq_len * workload.transformer->hidden *
                                                 static_cast<double>(workload.transformer->vocab)
                                           : 0;
  return 4 * forward - head;
}

// FLOP/s of a device as the row states them, and whether recomputation counts; 0: not stated.
double stated_flops_per_s(const Fields& row, const proto::Reading& reading, const Job& job, bool* recomputed,
                          std::vector<Assumed>* assumed) {
  const Cluster& cluster = job.cluster;
  const double peak = cluster.profiles[cluster.groups.front().node.profile].peak(job.training.precision);
  *recomputed = reading.counted_flops() == "recomputed";
  if (row.real("tflops_per_gpu") <= 0 && row.real("mfu_pct") <= 0) {
    *recomputed = true;
    return row.real("hfu_pct") / 100 * peak;
  }
  if (reading.counted_flops().empty())
    assumed->push_back(
        {"FLOP/s count the model's FLOPs with attention's whole square",
         "what most frameworks count; the source does not say",
         contains(row.text("act_recompute"), "full") ? kUnknownRecomputationWidens : kUnknownCountWidens});
  if (row.real("tflops_per_gpu") > 0) return row.real("tflops_per_gpu") * 1e12;
  return row.real("mfu_pct") / 100 * peak;
}

bool states_flops(const Fields& row) {
  return row.real("tflops_per_gpu") > 0 || row.real("mfu_pct") > 0 || row.real("hfu_pct") > 0;
}

bool states_time(const Fields& row) {
  return row.real("step_time_s") > 0 || row.real("tokens_per_s") > 0 ||
         row.real("tokens_per_s_per_gpu") > 0 || row.real("sequences_per_s") > 0;
}

}  // namespace

bool asks_for_prediction(const CsvTable& table, const CsvRow& fields) {
  const Fields row(table, fields);
  const bool batch = row.real("gbs_sequences") > 0 || row.real("mbs_sequences") > 0;
  const bool model = row.count("n_layers") > 0 || row.real("params_b") > 0;
  return states_time(row) || (states_flops(row) && batch && model);
}

double measured_seconds(const Fields& row, const proto::Reading& reading, const Job& job, double batch,
                        std::vector<Assumed>* assumed) {
  const double tokens = batch * job.training.seq_len;
  const int devices = row.count("n_gpus");
  if (row.real("step_time_s") > 0) return row.real("step_time_s");
  if (row.real("tokens_per_s") > 0) return tokens / row.real("tokens_per_s");
  if (row.real("tokens_per_s_per_gpu") > 0) return tokens / row.real("tokens_per_s_per_gpu") / devices;
  if (row.real("sequences_per_s") > 0) return batch / row.real("sequences_per_s");
  if (!states_flops(row)) return 0;
  bool recomputed = false;
  const double rate = stated_flops_per_s(row, reading, job, &recomputed, assumed);
  if (rate <= 0) return 0;  // of a peak that the device does not have
  return batch * counted_flops(job.workload, job.training.seq_len, recomputed) / (rate * devices);
}

void complete_columns(Fields* row) {
  const double step_s = row->real("step_time_s");
  double tokens = row->real("tokens_per_s") * step_s;
  if (tokens <= 0) tokens = row->real("tokens_per_s_per_gpu") * row->count("n_gpus") * step_s;
  const auto set = [&](const char* column, double value) {
    if (row->real(column) <= 0 && value >= 1 && std::isfinite(value))
      row->set(column, fmt::format("{:.0f}", value));
  };
  if (row->real("gbs_sequences") > 0) set("seq_len_tokens", tokens / row->real("gbs_sequences"));
  if (row->real("seq_len_tokens") > 0) set("gbs_sequences", tokens / row->real("seq_len_tokens"));
  set("gbs_sequences", row->real("sequences_per_s") * step_s);
  set("gbs_sequences", row->real("dp") * row->real("mbs_sequences") * row->real("grad_accum"));
}

}  // namespace orrery::evidence
