// A Plan: a Job (what is trained on what) and the Choices made for it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "program/runtime_profile.h"
#include "program/samples/sequence_lengths.h"
#include "topologies/cluster.h"
#include "workloads/workload.h"

namespace orrery::proto {
class Plan;
}

namespace orrery {

enum class Optimizer : std::uint8_t { sgd, momentum, adam, adamw };
enum class Schedule : std::uint8_t { gpipe, one_f_one_b, interleaved, zero_bubble, dualpipe_v };
enum class Recompute : std::uint8_t { none, selective, full };
enum class Compression : std::uint8_t { none, fp16, int8, topk };
enum class Sync : std::uint8_t { all_reduce, parameter_server, async_parameter_server, single_process };
// Tensors as large as the parameters that the optimizer keeps: 0, 1 (momentum) or 2 (Adam's moments).
int optimizer_states(Optimizer optimizer);
// A dimension of the parallel layout. ep lies inside dp*cp (with sequence parallelism
// inside tp/etp*dp*cp) and does not multiply the world.
enum class Dimension : std::uint8_t { tp, cp, ep, dp, pp };

std::string_view name_of(Optimizer);
std::string_view name_of(Schedule);  // "gpipe" "1f1b" "interleaved" "zero-bubble" "dualpipe-v"
std::string_view name_of(Recompute);
std::string_view name_of(Compression);
std::string_view name_of(Sync);  // "all-reduce" "parameter-server" …
std::string_view name_of(Dimension);
// Each throws UserError on an unknown name, listing the known ones.
Optimizer optimizer_from_name(std::string_view);
Schedule schedule_from_name(std::string_view);
Recompute recompute_from_name(std::string_view);
Compression compression_from_name(std::string_view);
Sync sync_from_name(std::string_view);
Dimension dimension_from_name(std::string_view);

struct Training {
  std::int64_t global_batch = 0;  // samples a step
  int seq_len = 0;                // tokens a sample; 0: no sequences
  DType precision = DType::bf16;
  Optimizer optimizer = Optimizer::adam;
  bool fused_attention = true;
  double learning_rate = 0;  // 0: the executor's default for the optimizer
  std::uint64_t seed = 1;
  SequenceLengths lengths = {};  // at most `seq_len`; none: all sequences are as long
  // That a sample takes on the nodes' storage, from which loaders read it a step ahead; 0: samples are in
  // the hosts' memory.
  double sample_bytes = 0;

  // Whether the global batch is as many samples for each of the replicas, in whole micro-batches.
  bool divides_over(std::int64_t replicas, std::int64_t micro_batch = 1) const {
    return global_batch % (replicas * micro_batch) == 0;
  }
  std::int64_t samples_each(std::int64_t replicas) const { return global_batch / replicas; }
  // Of a sample in the mean, without padding; 0 for models without sequences.
  double tokens_each() const { return seq_len > 0 ? content(lengths, seq_len).tokens : 0; }
};

struct Job {
  Workload workload;
  Cluster cluster;
  RuntimeProfile runtime;
  Training training;
};

// What a plan decides, each an option of `plan` that can be pinned (docs/options.md); check_plan() says what
// goes together.
struct Choices {
  // Ranks along each dimension; the world is tp * pp * dp * cp.
  int tp = 1;           // tensor: each operator split
  int pp = 1;           // pipeline: stages of layers
  int dp = 1;           // data: replicas of the model, each with a part of the batch
  int cp = 1;           // context: each sample's sequence split
  int ep = 1;           // expert: experts of a layer split; lies inside the others (Dimension)
  int etp = 1;          // tensor parallelism of experts, which may be less than tp
  int micro_batch = 1;  // samples of one pass of one replica
  Schedule schedule = Schedule::one_f_one_b;  // of the pipeline
  int interleave = 1;  // model chunks of a stage; 1 unless interleaved, 2 of dualpipe-v
  int zero = 0;  // ZeRO: dp * cp ranks shard (1) optimizer states, (2) gradients too, (3) parameters too
  Recompute recompute = Recompute::none;
  int recompute_layers = 0;         // with full: the first so many layers of a stage; 0: all
  ModuleSet recompute_modules = 0;  // with selective: what is run again; none: what the runtime says
  // Hybrid sharding: ranks over which ZeRO shards; 0: all of dp * cp. With ZeRO 0 the ranks in which an
  // all-reduce is summed first (hierarchical all-reduce).
  int shard_group = 0;
  std::vector<int> stage_layers;  // of each part of the model (part_of), in its order; empty: even
  // Innermost, that is of neighbouring ranks, first.
  std::array<Dimension, 5> order = {Dimension::tp, Dimension::cp, Dimension::ep, Dimension::dp,
                                    Dimension::pp};
  bool sequence_parallel = false;  // tensor ranks split the sequence between their split operators
  // The all-to-alls of a micro-batch's experts run beside what is computed of another (program/schedule.h).
  bool overlap_experts = false;
  bool overlap_grad_reduce = true;  // gradients are reduced, bucket by bucket, beside the backward pass
  double bucket_bytes = 0;          // of gradients, reduced together; 0: the runtime profile's
  Compression grad_compression = Compression::none;
  double topk_ratio = 0.01;  // with topk: share of the gradients that is sent, (0, 1]
  Sync sync = Sync::all_reduce;
  int servers = 0;    // parameter servers: 1 to dp
  int staleness = 0;  // asynchronous servers: steps that a worker may be ahead of the slowest; 0: any
  double capacity_factor = 0;                 // tokens an expert takes, in even shares; 0: dropless
  std::vector<std::int64_t> replica_batches;  // samples a step of each replica; empty: even
  // Of forms of parallelism that have no field above, by name (program/forms.h); what is not named has 1.
  std::map<std::string, int, std::less<>> degrees;

  int degree(std::string_view form) const {
    const auto at = degrees.find(form);
    return at == degrees.end() ? 1 : at->second;
  }
  int world() const { return tp * pp * dp * cp; }
  // Shards (of states or of a sum) over a part of dp*cp, and copies of them over the rest.
  bool hybrid() const { return shard_group > 0 && shard_group != dp * cp; }
  // Parameter servers among several workers; of these those that do not wait for each other.
  bool has_servers() const {
    return dp > 1 && (sync == Sync::parameter_server || sync == Sync::async_parameter_server);
  }
  bool asynchronous() const { return has_servers() && sync == Sync::async_parameter_server; }
  bool operator==(const Choices&) const = default;
};

// What selective recomputation runs again, as the plan or else the runtime says; nothing under another kind.
ModuleSet modules_run_again(const Choices& choices, const RuntimeProfile& runtime);
// A hash of `degrees`: for whoever keeps what it has found out by the choices that it depends on.
std::uint64_t degrees_key(const Choices& choices);

struct Plan {
  std::shared_ptr<const Job> job;  // shared: a search holds many plans of one job
  Choices choices;

  // Of one replica: global_batch / (dp * micro_batch); with uneven replica_batches, of the fullest.
  std::int64_t micro_batches() const;
  std::int64_t micro_batches_of(int replica) const;  // of the replica with this dp coordinate
  int stages() const { return choices.pp; }
  // By how much unequal sequences hold the slowest replica back: at least 1.
  double wait_for_longest() const;
  double padded_share()
      const;  // of the tokens that are computed; 0 where sequences are of one length or packed

  // Element types of activations and of their gradients, of the parameters that kernels read, and of the
  // gradients that are accumulated and reduced.
  DType activation_type() const;
  DType parameter_type() const;
  DType gradient_type() const;
  // Bytes that one rank of the first stage reads from its node's storage in a step, at most: its replica's
  // samples, each shared by tensor and context ranks. One process reads for all.
  double read_ahead_bytes(int replica) const;
  // Of the time of experts' traffic, as an idle network would carry it, what computation waits for (the
  // runtime profile's expert_exposed, shared_expert_traffic where tensor ranks share experts, and
  // experts_by_node where experts lie on several nodes).
  double expert_exposed() const;
  double bucket_bytes() const;  // chosen, or the runtime profile's; 0: one bucket for everything
};

// A pipeline cuts the model into pp * interleave parts, in the model's order. Chunk c of stage s holds part
// c * pp + s (Narayanan et al., SC'21, section 2.2), or, where chunks lie in a V (dualpipe-v), chunk 1 the
// part 2 * pp - 1 - s: the first stage has both ends of the model, the last its middle.
struct ChunkPlace {
  int stage = 0;
  int chunk = 0;
};
int part_of(const Choices& choices, int stage, int chunk);
ChunkPlace place_of_part(const Choices& choices, int part);
inline int parts_of(const Choices& choices) {
  return choices.pp * choices.interleave;
}
inline bool holds_first_part(const Choices& choices, int stage, int chunk) {
  return part_of(choices, stage, chunk) == 0;
}
inline bool holds_last_part(const Choices& choices, int stage, int chunk) {
  return part_of(choices, stage, chunk) == parts_of(choices) - 1;
}
// Whether one stage has the embedding and the head.
bool ends_meet(const Choices& choices);

// Layers [begin, end) of model chunk `chunk` (0 unless there are several) of pipeline stage `stage`.
// Embedding and head belong to the first and last part. Even cuts give the remainder to the earlier parts.
// Throws UserError where the plan's stage_layers do not add up.
struct LayerRange {
  int begin = 0;
  int end = 0;
};
LayerRange layers_of(const Plan& plan, int stage, int chunk);
// How many each part of the model has, in its order, whether they were given or follow from an even cut.
std::vector<int> layers_by_part(const Plan& plan);
// The operators [begin, end) of that chunk.
LayerRange operators_of(const Plan& plan, int stage, int chunk);

// Throws UserError (usage, no file) naming the option at fault: TP that does not divide heads, a batch that
// does not divide, a world that is not the cluster's size, a form of parallelism that has no lowering yet.
void check_plan(const Plan& plan);

// Throws UserError(file, line, …); the result has passed check_plan.
Plan plan_from_proto(const proto::Plan& message, std::string_view file, std::string_view text);
void to_proto(const Plan& plan, proto::Plan* message);
Plan load_plan(const std::string& file);

}  // namespace orrery
