#include "evidence/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "evidence/machines.h"
#include "evidence/models.h"
#include "program/placement.h"
#include "proto/evidence.pb.h"

namespace orrery::evidence {
namespace {

constexpr double kGibibyte = 1073741824.0;  // frameworks print PyTorch's counters in these, and call them GB

int vocabulary(const Fields& row, const proto::Reading& reading) {
  const int vocab = row.count("vocab");
  const int tp = std::max(1, row.count("tp"));
  if (reading.vocab_cut()) return vocab / tp * tp;
  return padded(vocab, reading.vocab_multiple(), tp);
}

StatedModel stated_model(const Fields& row, const proto::Reading& reading) {
  return {row.text("model"),        row.count("n_layers"),      row.count("hidden"),
          row.count("n_heads"),     row.count("n_kv_heads"),    row.count("ffn_hidden"),
          vocabulary(row, reading), row.count("seq_len_tokens")};
}

// FLOPs of a sequence with the backward twice the forward and attention's whole square.
double whole_square_flops(const Workload& workload, int seq_len) {
  double flops = workload.forward_flops_per_sample(seq_len);
  for (const Operator& op : workload.operators) {
    if (!op.attention || !op.attention->causal) continue;
    const AttentionShape& shape = *op.attention;
    flops += static_cast<double>(seq_len) * seq_len * shape.heads * (shape.qk_head_dim + shape.v_head_dim);
  }
  return 3 * flops;
}

// 0: the row has neither a step time nor a throughput.
double measured_seconds(const Fields& row, const proto::Reading& reading, const Workload& workload,
                        double batch) {
  const double tokens = batch * row.count("seq_len_tokens");
  const int devices = row.count("n_gpus");
  if (row.real("step_time_s") > 0) return row.real("step_time_s");
  if (row.real("tokens_per_s") > 0) return tokens / row.real("tokens_per_s");
  if (row.real("tokens_per_s_per_gpu") > 0) return tokens / row.real("tokens_per_s_per_gpu") / devices;
  if (row.real("sequences_per_s") > 0) return batch / row.real("sequences_per_s");
  // What others count (recomputation, the causal half) is not known well enough.
  if (row.real("tflops_per_gpu") > 0 && reading.whole_square_flops())
    return batch * whole_square_flops(workload, row.count("seq_len_tokens")) /
           (row.real("tflops_per_gpu") * 1e12 * devices);
  return 0;
}

// Cuts of a pipeline that a row has among the layers and as many modules before them as behind.
std::vector<int> stage_layers(const proto::Reading& reading, int layers, int stages) {
  const auto& cuts = reading.pipeline_cuts();
  if (stages == 1 || cuts.size() != stages + 1) return {};
  const int before = (cuts[stages] - layers) / 2;
  std::vector<int> sizes;
  for (int stage = 0; stage < stages; ++stage) {
    const int begin = std::clamp(cuts[stage] - before, 0, layers);
    sizes.push_back(std::clamp(cuts[stage + 1] - before, 0, layers) - begin);
  }
  return *std::min_element(sizes.begin(), sizes.end()) > 0 ? sizes : std::vector<int>{};
}

// Sequences of a micro-batch. Where its size is not stated, the number of micro-batches may be.
int micro_batch(const Fields& row, const proto::Reading& reading, int replica_batch, int stages) {
  if (reading.batch_cut_by_stages()) return std::max(1, replica_batch / stages);
  if (!row.stated("mbs_sequences") && row.count("grad_accum") > 0)
    return std::max(1, replica_batch / row.count("grad_accum"));
  return std::max(1, row.count("mbs_sequences"));
}

class StepReader {
 public:
  StepReader(const CsvTable& table, const CsvRow& fields)
      : row_(table, fields), job_(std::make_shared<Job>()) {
    const std::string runtime = runtime_for(row_.text("framework"));
    row_.set("runtime", runtime);
    if (!runtime.empty()) row_.set("default_zero", std::to_string(runtime_named(runtime).default_zero));
    findings_ = apply_rules(rules("steps"), &row_);
    step_.file = std::filesystem::path(table.file).stem();
    step_.line = fields.line;
  }

  ExplicitRow read() {
    devices_ = row_.count("n_gpus");
    batch_ = std::llround(row_.real("gbs_sequences"));
    if (devices_ <= 0) throw Unreadable{"the number of devices is not stated"};
    if (row_.count("seq_len_tokens") <= 0) throw Unreadable{"the sequence length is not stated"};
    if (batch_ <= 0) throw Unreadable{"the global batch is not stated"};
    if (!findings_.skip.empty()) throw Unreadable{findings_.skip};
    job_->workload = workload_of(stated_model(row_, reading()), findings_.transformer);
    read_outcome();
    read_job();
    read_layout();
    read_schedule();
    read_sharding();
    step_.group =
        fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", row_.file(), row_.text("framework"),
                    row_.text("date"), row_.text("model"), job_->workload.layers, row_.count("hidden"),
                    row_.count("n_heads"), row_.count("ffn_hidden"), row_.count("seq_len_tokens"),
                    row_.text("gpu"), devices_, row_.text("precision"), batch_);
    const Choices& c = choices();
    step_.label = fmt::format("tp{} pp{} dp{} cp{} ep{} v{} mb{} zero{} {}{}", c.tp, c.pp, c.dp, c.cp, c.ep,
                              c.interleave, c.micro_batch, c.zero, name_of(c.recompute),
                              c.sequence_parallel ? " sp" : "");
    step_.assumed = findings_.assumed;
    step_.plan.job = job_;
    return step_;
  }

 private:
  const proto::Reading& reading() const { return *findings_.reading; }
  Choices& choices() { return step_.plan.choices; }

  void read_outcome() {
    step_.measured_s = measured_seconds(row_, reading(), job_->workload, static_cast<double>(batch_));
    step_.measured_bytes = row_.real("mem_per_gpu_gb") * kGibibyte;
    step_.memory_kind = memory_kind_from(reading().memory_kind());
    step_.out_of_memory = reading().out_of_memory();
    if (step_.measured_s <= 0 && step_.measured_bytes <= 0 && !step_.out_of_memory)
      throw Unreadable{"neither a step time nor a throughput is stated"};
    if (row_.text("runtime").empty())
      throw Unreadable{"no runtime profile of the framework '" + row_.text("framework") + "'"};
    if (!reading().no_memory()) return;
    step_.measured_bytes = 0;
    if (step_.measured_s <= 0) throw Unreadable{"no step time is stated"};
  }

  void read_job() {
    job_->runtime = runtime_named(row_.text("runtime"), findings_.runtime);
    Training& training = job_->training;
    training.seq_len = row_.count("seq_len_tokens");
    training.fused_attention = job_->runtime.fused_attention;
    change(findings_.training, &training);
    job_->cluster =
        step_machine(row_.text("gpu"), devices_, row_.count("gpus_per_node"), row_.text("inter_link"));
  }

  void read_layout() {
    Choices& c = choices();
    c.tp = std::max(1, row_.count("tp"));
    c.pp = std::max(1, row_.count("pp"));
    c.cp = std::max(1, row_.count("cp"));
    c.ep = std::max(1, row_.count("ep"));
    // Experts are split as the rest is, unless the recipe says otherwise.
    if (c.ep > 1 && c.tp > 1 && job_->workload.transformer->moe && !reading().whole_experts()) c.etp = c.tp;
    // The world is tp pp dp cp: what a table calls dp is not always that.
    c.dp = replicas_of(c, devices_);
    job_->training.global_batch = batch_;
    if (!job_->training.divides_over(c.dp))
      throw Unreadable{fmt::format("dp {} does not divide the batch {}", c.dp, batch_)};
    if (reading().pipeline_batch() > 0) {
      const std::int64_t passes =
          std::max<std::int64_t>(1, job_->training.samples_each(c.dp) / reading().pipeline_batch());
      batch_ /= passes;
      step_.measured_s /= static_cast<double>(passes);
    }
    job_->training.global_batch = batch_;
    const auto replica_batch = static_cast<int>(job_->training.samples_each(c.dp));
    c.micro_batch = micro_batch(row_, reading(), replica_batch, c.pp);
    if (!job_->training.divides_over(c.dp, c.micro_batch))
      throw Unreadable{
          fmt::format("micro-batch {} does not divide a replica's {}", c.micro_batch, replica_batch)};
  }

  void read_schedule() {
    Choices& c = choices();
    int chunks = std::max(1, row_.count("vp_interleave"));
    const std::int64_t micro_batches = job_->training.samples_each(c.dp) / c.micro_batch;
    const int layers = job_->workload.layers;
    if (!row_.stated("vp_interleave") && reading().chunk_a_layer() && c.pp > 1)
      chunks = std::max(1, layers / c.pp);
    if (c.pp > 1 && chunks > 1 && micro_batches % c.pp == 0) {
      c.schedule = Schedule::interleaved;
      c.interleave = chunks;
    }
    if (c.pp * c.interleave > layers)
      throw Unreadable{fmt::format("{} model chunks of {} layers", c.pp * c.interleave, layers)};
    step_.recompute_stated = row_.stated("act_recompute");
    const bool sequence_parallel =
        reading().has_sequence_parallel() ? reading().sequence_parallel() : job_->runtime.sequence_parallel;
    c.sequence_parallel = sequence_parallel && c.tp > 1;
    if (expert_ranks(c) % c.ep != 0)
      throw Unreadable{fmt::format("ep {} does not divide {} ranks", c.ep, expert_ranks(c))};
    if (c.interleave == 1) c.stage_layers = stage_layers(reading(), layers, c.pp);
  }

  void read_sharding() {
    Choices& c = choices();
    step_.sharding_stated = row_.stated("dp_sharding") && !reading().sharding_unclear();
    c.zero = job_->runtime.default_zero;
    change(findings_.choices, &c);
    if (c.shard_group >= c.dp * c.cp) c.shard_group = 0;
    if (c.dp * c.cp == 1) c.zero = 0;
    c.overlap_grad_reduce = job_->runtime.overlap_grad_reduce;
  }

  Fields row_;
  Findings findings_;
  ExplicitRow step_;
  std::shared_ptr<Job> job_;
  int devices_ = 0;
  std::int64_t batch_ = 0;
};

}  // namespace

bool is_step_table(const CsvTable& table) {
  return table.column("step_time_s") >= 0 && table.column("n_layers") >= 0;
}

ExplicitRow read_step(const CsvTable& table, const CsvRow& fields) {
  return StepReader(table, fields).read();
}

}  // namespace orrery::evidence
