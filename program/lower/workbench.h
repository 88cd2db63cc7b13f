// The workbench on which the forms of parallelism compose.
//
// A micro-batch's way through a model chunk is a Pass: instructions whose micro-batch is left open, built
// once and stamped for every micro-batch. Forms that communicate inside a pass (tensor, expert, context
// parallelism) say what stands before and after an operator; recomputation adds work to the backward pass;
// the pipeline stamps passes in its schedule's order; data parallelism and ZeRO hang on the moments at which
// a pass needs a bucket's parameters and has finished its gradients.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "program/operator_shard.h"
#include "program/operator_work.h"
#include "program/plan.h"
#include "program/program.h"

namespace orrery::internal {

constexpr std::int32_t kOpenMicroBatch = -2;  // in a pattern: replaced by the micro-batch that is stamped

struct Pattern {
  Instruction instruction;     // `after` empty, micro-batches open
  std::vector<int> after;      // patterns of the same pass
  int tag_stride = 0;          // added to the transfers' tags for each micro-batch
  bool at_entry = false;       // waits for what the pass as a whole waits for
  std::vector<int> needs;      // buckets whose parameters it reads (compute only)
  std::vector<int> completes;  // buckets whose gradients are complete in this pass once it has run
};

struct Pass {
  std::vector<Pattern> patterns;
  std::vector<int> exit;  // patterns whose end is the pass's result
};

struct Chunk {
  int index = 0;
  LayerRange operators;
  bool first = false;  // of the whole model
  bool last = false;
  Pass forward;
  Pass backward;        // empty where the schedule always splits the backward pass
  Pass backward_input;  // these two where it ever does
  Pass backward_weight;
};

// What several forms want to know of the operator graph.
struct OperatorUse {
  int last_consumer = -1;          // highest index of an operator that reads its output
  int first_column_consumer = -1;  // of those that tensor parallelism splits by column (the head included)
  int last_column_consumer = -1;
  bool returns = false;  // split by column, and sent back to whole samples (workloads/graph_split.h)
};

class Lowering {
 public:
  Lowering(const Plan& plan, int rank);

  const Plan& plan() const { return plan_; }
  const Choices& choices() const { return plan_.choices; }
  const Operator& op(int index) const {
    return plan_.job->workload.operators[static_cast<std::size_t>(index)];
  }
  int op_count() const { return static_cast<int>(plan_.job->workload.operators.size()); }
  const Shard& shard() const { return shard_; }
  const OperatorUse& use(int op) const { return uses_[static_cast<std::size_t>(op)]; }
  double activation_bytes(int op) const;  // of the whole micro-batch's rows on this rank's context part

  // Index of the group in the program; -1 where it has one member. Made at first use.
  int group(GroupKind kind);
  const Group& group_at(int index) const { return program.groups[static_cast<std::size_t>(index)]; }

  std::uint32_t emit(Instruction&& instruction);  // numbers collectives
  // The last instruction emitted on the compute stream.
  bool has_compute() const { return last_compute_ >= 0; }
  std::uint32_t last_compute() const { return static_cast<std::uint32_t>(last_compute_); }

  Program program;
  std::vector<Chunk> chunks;
  std::vector<std::vector<int>> bucket_of;         // [op][parameter]; -1: of another stage
  std::vector<std::vector<int>> frozen_bucket_of;  // [op]: those with its frozen weights (ZeRO-3)
  std::vector<bool> tied_bucket;                   // shared with another stage
  std::vector<std::int64_t> partial_elements;      // by bucket: elements summed over the tensor group as well
  // By bucket: of tables whose gradients are the rows that were looked up (LaidBucket), or nothing.
  struct SparseBucket {
    bool sparse = false;
    double payload_bytes = 0;
  };
  std::vector<SparseBucket> sparse_bucket;

 private:
  const Plan& plan_;
  Shard shard_;
  std::vector<OperatorUse> uses_;
  std::map<GroupKind, int> groups_;  // those that were asked for
  std::vector<std::int64_t> sequences_;
  std::int64_t last_compute_ = -1;
};

// Builds one pass: computations join into the longest instruction that nothing interrupts.
class PassBuilder {
 public:
  explicit PassBuilder(Lowering& lowering) : lowering_(lowering) {}

  void compute(int op, ComputeKind kind);
  void communicate(Instruction&& instruction);
  void cut();  // what follows is another instruction
  Pass finish();

  // For ring attention, whose blocks and messages wait for each other in their own way: one block of an
  // operator, which waits for one pattern (-1: none) beyond the compute stream; a message, which waits for
  // what it says and, if asked, for the last computation; a pattern that the next computation waits for.
  int compute_block(int op, ComputeKind kind, int block, int after);
  // A whole operator by itself, for communication that overlaps with it; `waits`: for what is pending, too.
  int compute_alone(int op, ComputeKind kind, int after, bool waits);
  int add_communication(Pattern&& pattern, bool after_compute);
  void wait_for(int pattern) { pending_.push_back(pattern); }

 private:
  void close();
  Pattern computation(int begin, int end, ComputeKind kind) const;
  int add(Pattern&& pattern);
  int add_computation(Pattern&& pattern, bool waits);

  Lowering& lowering_;
  Pass pass_;
  bool open_ = false;
  ComputeKind kind_ = ComputeKind::forward;
  int begin_ = 0;
  int end_ = 0;
  int last_compute_ = -1;
  std::vector<int> pending_;  // communication since the last computation
};

using Communications = std::vector<Instruction>;

// chunk.cc
Chunk build_chunk(Lowering& lowering, int index);
// In which pass each bucket's gradients are complete.
void mark_completions(Lowering& lowering);
void build_forward(Lowering& lowering, PassBuilder& pass, LayerRange operators, ComputeKind kind);

// split.cc: a table whose rows tensor ranks share.
bool sums_rows(const Operator& op);

// tensor.cc: of its output features, but for experts.
bool splits_columns(const Operator& op);

// recompute.cc
bool recomputes_layer(const Lowering& lowering, int chunk, int layer);
// Selective: of a layer's operators, neighbours that are run again together, and the operator before whose
// backward pass they are: the last that needs what they put out.
struct RunAgain {
  LayerRange operators;
  int due = 0;
};
std::vector<RunAgain> runs_again(const Lowering& lowering, LayerRange layer);

// data.cc
// Over the data group or what stands for it, in place; of the tensor's micro-batch.
Instruction data_collective(CollectiveKind kind, int group, TensorRef tensor, double elements, DType type);
void lay_out_buckets(Lowering& lowering);
// Reduces the gradients of one bucket, of `micro_batch` or (-1) of all; `last`: none will be added. Returns
// the instruction that makes them what the optimizer wants.
std::uint32_t reduce_bucket(Lowering& lowering, int bucket, std::int32_t micro_batch, bool last,
                            std::vector<std::uint32_t> after);
// `ready`: by bucket, the instruction that reduced its gradients, or -1.
void finish_step(Lowering& lowering, std::vector<std::int64_t> ready);

// zero.cc
bool reduces_every_micro_batch(const Lowering& lowering, int bucket);
std::uint32_t gather_parameters(Lowering& lowering, int bucket, std::int64_t after);  // after: -1 for nothing

// Brings parameters to where passes need them: with ZeRO-3 before every use, a layer ahead where the runtime
// does that (RuntimeProfile::gathers_on_demand, live_parameters); with ZeRO-1 and 2 under a runtime that
// overlaps the gathering with the next step's forward, before the first use.
class ParameterGather {
 public:
  explicit ParameterGather(Lowering& lowering) : lowering_(lowering) {}

  void plan_uses(int slot, const Pass& pass);  // once for every slot, in order
  void start();
  // Before the pattern of the slot is emitted: what it must wait for is added to `after`.
  void before(int slot, int pattern, std::vector<std::uint32_t>* after);

 private:
  struct Run {  // of patterns of one layer, one after another
    int slot = 0;
    int pattern = 0;
    std::vector<int> buckets;
    std::vector<std::uint32_t> gathers;
  };
  void forget_used();
  bool ahead(const Run& run) const;
  void gather(Run& run, std::int64_t after);

  Lowering& lowering_;
  std::vector<Run> runs_;
  std::vector<int> resident_;  // buckets
  std::size_t next_ = 0;
};

// hierarchical.cc
// Whether a bucket's all-reduce is a reduce-scatter inside its group, an all-reduce across the groups and an
// all-gather inside; the sum of the parts across the groups, which hybrid sharding has too; the way back.
bool reduces_in_stages(const Lowering& lowering, int bucket);
std::uint32_t sum_across_groups(Lowering& lowering, int bucket, std::uint32_t after);
std::uint32_t gather_gradients(Lowering& lowering, int bucket, std::uint32_t after);

// compression.cc
bool compresses(const Lowering& lowering, int bucket);
std::uint32_t pack_bucket(Lowering& lowering, int bucket, const std::vector<std::uint32_t>& after);
Instruction compressed_collective(const Lowering& lowering, int bucket);
std::uint32_t unpack_bucket(Lowering& lowering, int bucket, std::uint32_t after);

// server.cc
bool has_servers(const Lowering& lowering);  // that all workers wait for
bool has_one_process(const Lowering& lowering);
bool updates_buckets(const Lowering& lowering);  // or slices of them
std::uint32_t push_gradients(Lowering& lowering, int bucket, std::vector<std::uint32_t> after);
std::uint32_t pull_parameters(Lowering& lowering, int bucket, std::uint32_t after);
// An exchange of slices of a bucket with servers, still without a message; one message of it, with the rank
// at position `other` of the data group; all messages of a worker with all servers but its own rank.
Instruction slice_exchange(const Lowering& lowering, int bucket, TensorKind kind);
void add_slice(Lowering& lowering, Instruction& instruction, int other, int server, bool send);
Instruction to_servers(Lowering& lowering, int bucket, TensorKind kind);
// Device 0's inputs and parameters to everyone; returns what the forward pass waits for.
std::vector<std::uint32_t> replicate(Lowering& lowering, int micro_batch, std::int64_t loaded);
void gather_loss(Lowering& lowering, int micro_batch);

// asynchronous.cc: a worker's bucket to the servers and back; what servers do for their workers.
std::uint32_t push_and_pull(Lowering& lowering, int bucket, const std::vector<std::uint32_t>& after);
void add_services(Lowering& lowering);

// data.cc: the update of these buckets by this rank, as much of them as it keeps.
Instruction update_of(const Lowering& lowering, const std::vector<std::int32_t>& buckets);

// pipeline.cc: everything from the first load to the last backward. Returns, by bucket, the instruction
// that reduced it, or -1.
std::vector<std::int64_t> run_schedule(Lowering& lowering);

}  // namespace orrery::internal
