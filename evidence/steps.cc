#include "evidence/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/units.h"
#include "evidence/words/machines.h"
#include "evidence/words/models.h"
#include "planner/closed_form/figures.h"
#include "planner/space/balance.h"
#include "program/placement.h"
#include "proto/evidence.pb.h"
#include "proto/textproto.h"
#include "proto/workload.pb.h"
#include "workloads/readers/catalog.h"

namespace orrery::evidence {
namespace {

// Assumed::widens of what the reader takes to hold where a row says nothing.
constexpr int kUsualSeqLen = 2048;
constexpr double kUsualSeqLenWidens = 0.5;  // of a time for so many samples: half and twice as long are usual
constexpr double kModelSeqLenWidens = 0.25;   // of the same, by the length that the model was trained on
constexpr double kRateSeqLenWidens = 0.05;    // of tokens or FLOPs a second: only attention's share of them
constexpr double kUnknownBatchWidens = 0.15;  // of a rate: the share of what is done once a step
constexpr double kUnknownLayoutWidens = 0.15;
constexpr double kOtherPrecisionWidens = 0.2;
constexpr double kUnknownRecomputationWidens = 0.1;  // of software whose defaults are not known
constexpr double kUnknownMicroBatchWidens = 0.05;
constexpr double kNearestBatchWidens = 0.02;
constexpr double kNearestChunksWiden = 0.05;

int vocabulary(const Fields& row, const proto::Reading& reading) {
  const int vocab = row.count("vocab");
  const int tp = std::max(1, row.count("tp"));
  if (reading.vocab_cut()) return vocab / tp * tp;
  return padded(vocab, reading.vocab_multiple(), tp);
}

StatedModel stated_model(const Fields& row, const proto::Reading& reading, bool own) {
  return {row.text("model"),          row.count("n_layers"),
          row.count("hidden"),        row.count("n_heads"),
          row.count("n_kv_heads"),    row.count("ffn_hidden"),
          vocabulary(row, reading),   row.count("seq_len_tokens"),
          row.real("params_b") * 1e9, own};
}

bool states_step_time(const Fields& row) {
  return row.real("step_time_s") > 0 || row.real("sequences_per_s") > 0;
}

// Cuts of a pipeline that a row has among the layers and as many modules before them as behind. `parts`: its
// stages, or all of their chunks.
std::vector<int> stage_layers(const proto::Reading& reading, int layers, int parts) {
  std::vector<int> cuts(reading.pipeline_cuts().begin(), reading.pipeline_cuts().end());
  if (reading.pipeline_parts_size() > 0) {
    cuts.assign(1, 0);
    for (const int modules : reading.pipeline_parts()) cuts.push_back(cuts.back() + modules);
  }
  if (parts == 1 || static_cast<int>(cuts.size()) != parts + 1) return {};
  const int before = (cuts[parts] - layers) / 2;
  std::vector<int> sizes;
  for (int part = 0; part < parts; ++part) {
    const int begin = std::clamp(cuts[part] - before, 0, layers);
    sizes.push_back(std::clamp(cuts[part + 1] - before, 0, layers) - begin);
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

// Assumed::widens of FLOP/s whose way of counting is not known: of attention's half, the head and the
// embedding under a tenth is in doubt, of recomputation a quarter.
constexpr double kUnknownCountWidens = 0.08;
constexpr double kUnknownRecomputedCountWidens = 0.15;

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
         contains(row.text("act_recompute"), "full") ? kUnknownRecomputedCountWidens : kUnknownCountWidens});
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

class StepReader {
 public:
  // `micro_batch`: what is taken where the row names no size.
  StepReader(const CsvTable& table, const CsvRow& fields, const Instead& instead, int micro_batch)
      : row_(table, fields),
        job_(std::make_shared<Job>()),
        instead_(instead),
        unstated_micro_batch_(micro_batch) {
    step_.framework = row_.text("framework");
    const std::string runtime =
        instead.knows_framework
            ? runtime_for(step_.framework)
            : runtime_of_row(step_.framework, row_.text("date"), row_.stated("date") ? "" : generation());
    // Of its later name nothing is said that rules know of the earlier.
    if (runtime != runtime_for(step_.framework)) row_.set("framework", "Megatron-Core");
    unknown_framework_ = runtime.empty();
    row_.set("runtime", unknown_framework_ ? default_runtime(RuntimeUse::gpu).name : runtime);
    row_.set("default_zero", std::to_string(runtime_named(row_.text("runtime")).default_zero));
    row_.set("known_runtime", runtime);
    complete_columns(&row_);
    findings_ = apply_rules(rules("steps"), &row_);
    const auto add = [](const std::vector<std::string>& changes, std::vector<std::string>* all) {
      all->insert(all->end(), changes.begin(), changes.end());
    };
    add(said().transformer, &findings_.transformer);
    add(said().training, &findings_.training);
    add(said().runtime, &findings_.runtime);
    add(said().runtime, &findings_.runtime_of_the_row);
    step_.file = std::filesystem::path(table.file).stem();
    folder_ = std::filesystem::path(table.file).parent_path();
    step_.line = fields.line;
  }

  ExplicitRow read() {
    devices_ = row_.count("n_gpus");
    if (!findings_.skip.empty()) throw Unreadable{findings_.skip, findings_.counts};
    if (devices_ <= 0) throw Unreadable{"the number of devices is not stated"};
    step_.assumed = findings_.assumed;
    read_seq_len();
    read_global_batch();
    job_->workload = workload(findings_.transformer, &step_.assumed);
    repeat_kv_heads();
    read_job();
    read_layout();
    read_batch();
    read_outcome();
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
    if (c.hybrid()) step_.label += fmt::format(" of {}", c.shard_group);
    step_.plan.job = job_;
    // Of a model that no device holds, others' layouts are better than any that nobody ran. What one's own
    // row leaves out does not apply: data parallelism is what ran.
    if (unknown_layout_ && !instead_.own && !planner::predict_memory(step_.plan).fits())
      throw Unreadable{
          "the layout is not stated (tp, pp or dp_sharding), and data parallelism alone does not fit"};
    return step_;
  }

  // Of one replica, where it may be cut into micro-batches as one likes; else 0.
  std::int64_t cut_as_one_likes() const { return cut_as_one_likes_; }

 private:
  const proto::Reading& reading() const { return *findings_.reading; }
  const Said& said() const { return instead_.said; }
  Choices& choices() { return step_.plan.choices; }
  void assume(const std::string& what, const std::string& why, double widens) {
    step_.assumed.push_back({what, why, widens});
  }

  // Of the row's device; empty: not known.
  std::string generation() const {
    const auto of = [](const Cluster& cluster) {
      return cluster.profiles[static_cast<std::size_t>(cluster.groups.front().node.profile)].generation;
    };
    if (instead_.cluster) return of(*instead_.cluster);
    try {
      return of(cluster_with_device(row_.text("gpu"), ""));
    } catch (const Unreadable&) {
      return "";
    }
  }

  // By its file where the row names one, beside the table or from where we stand; else by name and
  // dimensions.
  Workload workload(const std::vector<std::string>& changes, std::vector<Assumed>* assumed) const {
    if (said().workload) return changed(*said().workload, changes);
    const std::string named = row_.text("model_file");
    if (named.empty()) return workload_of(stated_model(row_, reading(), instead_.own), changes, assumed);
    const std::filesystem::path beside = folder_ / named;
    const auto readable = [](const std::filesystem::path& path) {
      std::error_code unreadable;
      return std::filesystem::is_regular_file(path, unreadable) ||
             std::filesystem::is_directory(path, unreadable);
    };
    if (!readable(beside) && !readable(named)) throw Unreadable{"'" + named.substr(0, 100) + "' is no file"};
    const Workload own = load_workload(readable(beside) ? beside.string() : named);
    if (!own.transformer) throw Unreadable{"'" + named + "' is no transformer"};
    return changed(own, changes);
  }

  static Workload changed(const Workload& own, const std::vector<std::string>& changes) {
    proto::Workload message;
    to_proto(own, &message);
    for (const std::string& text : changes)
      merge_textproto(text, "a rule's model", message.mutable_transformer());
    return workload_from_proto(message, own.name, "");
  }

  void read_seq_len() {
    if (row_.count("seq_len_tokens") > 0) return;
    const int known = known_seq_len(stated_model(row_, reading(), instead_.own));
    const int length = known > 0 ? known : kUsualSeqLen;
    const double of_times = known > 0 ? kModelSeqLenWidens : kUsualSeqLenWidens;
    row_.set("seq_len_tokens", std::to_string(length));
    assume(fmt::format("sequences of {} tokens", length),
           known > 0 ? "the model was trained on them" : "most usual where nothing is known",
           states_step_time(row_) ? of_times : kRateSeqLenWidens);
  }

  // More tensor ranks than key-value heads: each has a copy of one.
  void repeat_kv_heads() {
    const int tp = row_.count("tp"), heads = job_->workload.transformer->kv_heads;
    if (tp <= heads || heads <= 0 || tp % heads != 0 || job_->workload.transformer->heads % tp != 0) return;
    std::vector<std::string> changes = findings_.transformer;
    changes.push_back(fmt::format("kv_heads: {}", tp));
    job_->workload = workload(changes, nullptr);
    assume(fmt::format("{} key-value heads", tp), fmt::format("{} are repeated on tp {}", heads, tp), 0);
  }

  // What follows from the length of sequences.
  void read_global_batch() {
    complete_columns(&row_);
    batch_ = std::llround(row_.real("gbs_sequences"));
  }

  void read_outcome() {
    step_.measured_s = measured_seconds(row_, reading(), *job_, measured_batch_, &step_.assumed) * share_;
    step_.measured_bytes = row_.real("mem_per_gpu_gb") * (reading().decimal_gigabytes() ? 1e9 : kGibibyte);
    step_.memory_kind = memory_kind_from(reading().memory_kind());
    step_.memory_of_first_stage = reading().memory_of_first_stage();
    step_.out_of_memory = reading().out_of_memory();
    if (step_.measured_s <= 0 && step_.measured_bytes <= 0 && !step_.out_of_memory)
      throw Unreadable{"neither a step time nor a throughput is stated"};
    if (!reading().no_memory()) return;
    step_.measured_bytes = 0;
    if (step_.measured_s <= 0) throw Unreadable{"no step time is stated"};
  }

  void read_job() {
    own_runtime_ = runtime_named(row_.text("runtime"), findings_.runtime);
    if (unknown_framework_ && row_.text("runtime") == default_runtime(RuntimeUse::gpu).name)
      assume(fmt::format("runtime {}", own_runtime_.name),
             fmt::format("no profile is of the framework '{}': the population's", row_.text("framework")), 0);
    job_->runtime =
        instead_.runtime ? evidence::changed(*instead_.runtime, findings_.runtime_of_the_row) : own_runtime_;
    Training& training = job_->training;
    training.seq_len = row_.count("seq_len_tokens");
    training.fused_attention = job_->runtime.fused_attention;
    change(findings_.training, &training);
    job_->cluster =
        instead_.cluster
            ? as_many(*instead_.cluster, devices_, &step_.assumed)
            : step_machine({row_.text("gpu"), devices_, row_.count("gpus_per_node"), row_.text("inter_link")},
                           &step_.assumed);
  }

  // What every device computes in: of a row that says nothing, or something that there is not.
  void read_precision() {
    const Cluster& cluster = job_->cluster;
    const auto computes = [&](DType type) {
      return std::all_of(cluster.groups.begin(), cluster.groups.end(), [&](const NodeGroup& group) {
        return cluster.profiles[group.node.profile].compute_type(type) == type;
      });
    };
    DType& precision = job_->training.precision;
    if (computes(precision)) return;
    const DType stated = precision;
    precision = DType::fp32;
    for (const DType type : {DType::fp16, DType::bf16})
      if (computes(type) && stated != DType::tf32) precision = type;
    assume(fmt::format("precision {}", name_of(precision)),
           fmt::format("the device does not compute in {}", name_of(stated)),
           row_.stated("precision") ? kOtherPrecisionWidens : 0);
  }

  void read_layout() {
    Choices& c = choices();
    c.tp = std::max(1, row_.count("tp"));
    c.pp = std::max(1, row_.count("pp"));
    c.cp = std::max(1, row_.count("cp"));
    c.ep = std::max(1, row_.count("ep"));
    // Experts are split as the rest is, unless the recipe says otherwise.
    if (c.ep > 1 && c.tp > 1 && job_->workload.transformer->moe && !reading().whole_experts()) c.etp = c.tp;
    if (said().plan.etp) c.etp = *said().plan.etp;
    // The world is tp pp dp cp: what a table calls dp is not always that.
    c.dp = replicas_of(c, devices_);
    // Who says how data-parallel ranks share the model has named the layout.
    unknown_layout_ = !row_.stated("tp") && !row_.stated("pp") && !row_.stated("dp_sharding") && c.dp > 1;
    if (unknown_layout_)
      assume("no tensor or pipeline parallelism", "the row says nothing of either", kUnknownLayoutWidens);
    if (row_.stated("tp") || batch_ <= 0 || batch_ >= c.dp) return;
    const int stated = c.tp;
    while (c.dp > batch_ && c.dp % 2 == 0) {
      c.tp *= 2;
      c.dp /= 2;
    }
    if (c.tp != stated)
      assume(fmt::format("tp {}", c.tp), fmt::format("the batch of {} has no more replicas", batch_), 0);
  }

  // The global batch, in whole micro-batches of every replica; the share of the row's that it is.
  void read_batch() {
    Choices& c = choices();
    if (batch_ <= 0) batch_ = usual_batch();
    measured_batch_ = static_cast<double>(batch_);
    if (batch_ < c.dp) throw Unreadable{fmt::format("a batch of {} for dp {}", batch_, c.dp)};
    std::int64_t replica_batch = batch_ / c.dp;
    if (reading().pipeline_batch() > 0) {
      const std::int64_t passes = std::max<std::int64_t>(1, replica_batch / reading().pipeline_batch());
      replica_batch /= passes;
      share_ /= static_cast<double>(passes);
    }
    c.micro_batch = std::min(static_cast<int>(replica_batch),
                             micro_batch(row_, reading(), static_cast<int>(replica_batch), c.pp));
    if (!row_.stated("mbs_sequences") && row_.count("grad_accum") <= 0 && replica_batch > 1) {
      if (!reading().batch_cut_by_stages()) {
        c.micro_batch = unstated_micro_batch_;
        cut_as_one_likes_ = replica_batch;
      }
      assume(fmt::format("micro-batches of {}", c.micro_batch),
             "the row names no size; of those that fit, the fastest by the estimate",
             kUnknownMicroBatchWidens);
    }
    replica_batch = replica_batch / c.micro_batch * c.micro_batch;
    const std::int64_t nearest = replica_batch * c.dp;
    const double asked = measured_batch_ * share_;
    share_ *= static_cast<double>(nearest) / asked;
    batch_ = nearest;
    job_->training.global_batch = nearest;
    if (std::abs(static_cast<double>(nearest) - asked) > 1e-6 * asked)
      assume(fmt::format("{} of the batch of {:.0f}, in as much of the time", nearest, asked),
             fmt::format("dp {} with micro-batch {} does not divide it", c.dp, c.micro_batch),
             kNearestBatchWidens);
  }

  // A rate says little of the batch that it was measured with: one pass of every stage.
  std::int64_t usual_batch() {
    const Choices& c = choices();
    const bool rate = row_.real("tokens_per_s") > 0 || row_.real("tokens_per_s_per_gpu") > 0 ||
                      row_.real("sequences_per_s") > 0;
    const int accumulated = row_.count("mbs_sequences") * row_.count("grad_accum");
    if (accumulated > 0) return std::int64_t{c.dp} * accumulated;
    if (row_.real("step_time_s") > 0 || (!rate && !row_.stated("mbs_sequences")))
      throw Unreadable{"the global batch is not stated"};
    const std::int64_t batch = std::int64_t{c.dp} * c.pp * std::max(1, row_.count("grad_accum")) *
                               std::max(1, row_.count("mbs_sequences"));
    assume(fmt::format("a batch of {}", batch),
           "a rate without a batch: a micro-batch for each stage of each replica",
           kUnknownBatchWidens * (row_.stated("mbs_sequences") ? 1 : 2));
    return batch;
  }

  void read_schedule() {
    Choices& c = choices();
    int chunks = std::max(1, row_.count("vp_interleave"));
    const std::int64_t micro_batches = job_->training.samples_each(c.dp) / c.micro_batch;
    const int layers = job_->workload.layers;
    if (!row_.stated("vp_interleave") && reading().chunk_a_layer() && c.pp > 1)
      chunks = std::max(1, layers / c.pp);
    if (c.pp > layers) throw Unreadable{fmt::format("{} stages of {} layers", c.pp, layers)};
    if (c.pp * chunks > layers && !ends_count(layers, c.pp * chunks)) {
      assume(fmt::format("{} model chunks of {} layers", layers / c.pp * c.pp, layers),
             fmt::format("{} are more than layers", c.pp * chunks), kNearestChunksWiden);
      chunks = layers / c.pp;
    }
    if (c.pp > 1 && chunks > 1 && micro_batches % c.pp == 0) {
      c.schedule = Schedule::interleaved;
      c.interleave = chunks;
    }
    const bool sequence_parallel = said().plan.sequence_parallel.value_or(
        reading().has_sequence_parallel() ? reading().sequence_parallel() : own_runtime_.sequence_parallel);
    // A class token beside an image's patches is dealt to no two ranks evenly.
    c.sequence_parallel = sequence_parallel && c.tp > 1 && job_->training.seq_len % (c.cp * c.tp) == 0;
    if (expert_ranks(c) % c.ep != 0 && c.etp > 1 && !said().plan.etp) {
      c.etp = 1;
      assume("whole experts", fmt::format("ep {} has no ranks otherwise", c.ep), 0);
    }
    if (expert_ranks(c) % c.ep != 0)
      throw Unreadable{fmt::format("ep {} does not divide {} ranks", c.ep, expert_ranks(c))};
    c.stage_layers = said().plan.stage_layers.value_or(stage_layers(reading(), layers, c.pp * c.interleave));
    if (c.stage_layers.empty() && ends_count(layers, c.pp * c.interleave))
      c.stage_layers = planner::ends_count_cut(layers, c.pp * c.interleave);
  }

  // Megatron refuses unequal parts that nobody asked for, and to count the ends is the usual way to ask.
  bool ends_count(int layers, int parts) const {
    return !reading().cut_by_layers_alone() && planner::ends_fill_parts(layers, parts);
  }

  void read_sharding() {
    Choices& c = choices();
    c.zero = own_runtime_.default_zero;
    change(findings_.choices, &c);
    take_said(&c);
    if (c.shard_group >= c.dp * c.cp || c.shard_group == 1) c.shard_group = 0;
    if (c.dp * c.cp == 1) c.zero = 0;
    if (c.zero == 0) c.shard_group = 0;
    c.overlap_grad_reduce = job_->runtime.overlap_grad_reduce;
    if (reading().has_overlap_grad_reduce()) c.overlap_grad_reduce = reading().overlap_grad_reduce();
    if (said().plan.overlap_grad_reduce) c.overlap_grad_reduce = *said().plan.overlap_grad_reduce;
    if (row_.text("known_runtime").empty() && !row_.stated("act_recompute")) unknown_recomputation();
  }

  void take_said(Choices* c) const {
    const planner::Pins& plan = said().plan;
    const auto take = [](const auto& value, auto* choice) {
      if (value) *choice = *value;
    };
    take(plan.zero, &c->zero);
    take(plan.shard_group, &c->shard_group);
    take(plan.order, &c->order);
    take(plan.overlap_experts, &c->overlap_experts);
    take(plan.bucket_bytes, &c->bucket_bytes);
    take(plan.capacity_factor, &c->capacity_factor);
    if (c->recompute == Recompute::full) take(plan.recompute_layers, &c->recompute_layers);
    if (c->recompute == Recompute::selective) take(plan.recompute_modules, &c->recompute_modules);
  }

  // Of software whose defaults are not known: as the runtime does, or all of it where the plan, which ran,
  // does not fit otherwise.
  void unknown_recomputation() {
    Choices& c = choices();
    step_.plan.job = job_;
    const bool ran = step_.measured_s > 0 && !step_.out_of_memory;
    std::string why = "the row says nothing of it";
    if (ran && c.recompute != Recompute::full && !planner::predict_memory(step_.plan).fits()) {
      c.recompute = Recompute::full;
      c.recompute_modules = 0;
      why += ", and it does not fit without";
    }
    assume(fmt::format("recomputation {}", name_of(c.recompute)), why, kUnknownRecomputationWidens);
  }

  Fields row_;
  Findings findings_;
  ExplicitRow step_;
  std::shared_ptr<Job> job_;
  const Instead& instead_;
  RuntimeProfile own_runtime_;  // the row's, whatever it is predicted with
  bool unknown_framework_ = false;
  bool unknown_layout_ = false;
  int devices_ = 0;
  std::int64_t batch_ = 0;
  double measured_batch_ = 0;     // of the row
  std::filesystem::path folder_;  // of the table
  double share_ = 1;              // of it that the plan's step takes
  int unstated_micro_batch_ = 1;
  std::int64_t cut_as_one_likes_ = 0;
};

// Where a row names no size of a micro-batch, people have tried some, and have published the best.
constexpr int kMostMicroBatch = 16;
// Of a plan that can be had, and fits; else none.
std::optional<double> seconds_of(const Plan& plan) {
  try {
    check_plan(plan);
  } catch (const UserError&) {
    return {};
  }
  if (!planner::predict_memory(plan).fits()) return {};
  return planner::estimate_step_seconds(plan);
}

}  // namespace

bool asks_for_prediction(const CsvTable& table, const CsvRow& fields) {
  const Fields row(table, fields);
  const bool batch = row.real("gbs_sequences") > 0 || row.real("mbs_sequences") > 0;
  const bool model = row.count("n_layers") > 0 || row.real("params_b") > 0 || !row.text("model_file").empty();
  return states_time(row) || (states_flops(row) && batch && model);
}

bool is_step_table(const CsvTable& table) {
  return table.column("step_time_s") >= 0 &&
         (table.column("n_layers") >= 0 || table.column("model_file") >= 0);
}

ExplicitRow read_step(const CsvTable& table, const CsvRow& fields, const Instead& instead) {
  StepReader reader(table, fields, instead, 1);
  ExplicitRow best = reader.read();
  if (reader.cut_as_one_likes() <= 1) return best;
  std::optional<double> least_s = seconds_of(best.plan);
  for (int size = 2; least_s && size <= kMostMicroBatch && reader.cut_as_one_likes() % size == 0; size *= 2) {
    ExplicitRow other;
    try {
      other = StepReader(table, fields, instead, size).read();
    } catch (const Unreadable&) {  // as one that does not fit where the row says nothing of its layout
      break;
    }
    const std::optional<double> estimate_s = seconds_of(other.plan);
    if (!estimate_s || other.plan.choices.interleave != best.plan.choices.interleave) break;
    if (*estimate_s >= *least_s) continue;
    least_s = estimate_s;
    best = std::move(other);
  }
  return best;
}

}  // namespace orrery::evidence
