// The step's body: the pipeline schedule's slots, each a stamped pass, with what crosses stage boundaries
// around it and the gradients' reduction hung on the last of them.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "program/lower/workbench.h"
#include "program/placement.h"
#include "program/schedule.h"

namespace orrery::internal {
namespace {

struct Boundary {
  std::vector<int> operators;  // whose outputs cross it
  int peer = -1;               // whom messages go to; -1: nobody
  bool within = false;         // between two chunks of this stage: what crosses stays where it is
  bool returns = false;        // going forward leads to the stage before
  int upstream_chunk = 0;      // chunk on the earlier side: numbers the messages
};

class ScheduleRun {
 public:
  explicit ScheduleRun(Lowering& lowering) : lowering_(lowering), parameters_(lowering) {
    const Choices& choices = lowering_.choices();
    slots_ =
        schedule_slots(choices.schedule, at().pp, choices.pp, choices.interleave,
                       static_cast<int>(lowering_.plan().micro_batches_of(at().dp)), choices.overlap_experts);
    received_.assign(slots_.size(), -1);
    reduced_.assign(lowering_.program.buckets.size(), -1);
    last_backward_.assign(static_cast<std::size_t>(choices.interleave), -1);
    std::size_t size = 64;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].kind != SlotKind::forward)
        last_backward_[static_cast<std::size_t>(slots_[i].chunk)] = static_cast<int>(i);
      size += pass_of(slots_[i]).patterns.size() + 4;
      parameters_.plan_uses(static_cast<int>(i), pass_of(slots_[i]));
    }
    for (const Chunk& chunk : lowering_.chunks) {
      incoming_.push_back(boundary(chunk, /*incoming=*/true));
      outgoing_.push_back(boundary(chunk, /*incoming=*/false));
    }
    lowering_.program.instructions.reserve(size + 2 * reduced_.size());
  }

  std::vector<std::int64_t> run() {
    read_ahead();
    parameters_.start();
    if (pipeline_blocks(lowering_.plan())) return run_blocking();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      receive(i);
      if (i + 1 < slots_.size()) receive(i + 1);  // posted early, so that it runs beside this slot
      if (slots_[i].with_next) {
        run_pair(i++);
        continue;
      }
      std::vector<std::uint32_t> ends = run_slot(i);
      if (slots_[i].kind != SlotKind::backward_weight) send(slots_[i], std::move(ends));
    }
    return std::move(reduced_);
  }

 private:
  std::vector<std::int64_t> run_blocking() {
    exchange_blocking(nullptr, slots_.data(), {});
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      std::vector<std::uint32_t> ends = run_slot(i);
      exchange_blocking(&slots_[i], i + 1 < slots_.size() ? &slots_[i + 1] : nullptr, std::move(ends));
    }
    return std::move(reduced_);
  }

  void exchange_blocking(const Slot* done, const Slot* next, std::vector<std::uint32_t> after) {
    Instruction together;
    const auto append = [&](const Slot& slot, bool send) {
      const bool backward = slot.kind != SlotKind::forward;
      const Boundary& boundary =
          (backward == send ? incoming_ : outgoing_)[static_cast<std::size_t>(slot.chunk)];
      if (boundary.peer < 0) return;
      Instruction part = exchange(boundary, send, backward, slot.micro_batch);
      if (together.transfers.empty()) {
        together = std::move(part);
        return;
      }
      together.bytes += part.bytes;
      together.transfers.insert(together.transfers.end(), part.transfers.begin(), part.transfers.end());
      together.reads.insert(together.reads.end(), part.reads.begin(), part.reads.end());
      together.writes.insert(together.writes.end(), part.writes.begin(), part.writes.end());
    };
    if (done != nullptr) append(*done, /*send=*/true);
    if (next != nullptr) append(*next, /*send=*/false);
    if (together.transfers.empty()) return;
    together.stream = Stream::pipeline_forward;
    together.after = std::move(after);
    carried_.push_back(lowering_.emit(std::move(together)));
  }

  const Coordinates& at() const { return lowering_.program.at; }
  const Chunk& chunk_of(const Slot& slot) const {
    return lowering_.chunks[static_cast<std::size_t>(slot.chunk)];
  }

  const Pass& pass_of(const Slot& slot) const {
    const Chunk& chunk = chunk_of(slot);
    switch (slot.kind) {
      case SlotKind::forward:
        return chunk.forward;
      case SlotKind::backward:
        return chunk.backward;
      case SlotKind::backward_input:
        return chunk.backward_input;
      case SlotKind::backward_weight:
        return chunk.backward_weight;
    }
    throw InternalError("unknown slot");
  }

  Boundary boundary(const Chunk& chunk, bool incoming) const {
    Boundary result;
    if (incoming ? chunk.first : chunk.last) return result;
    const int cut = incoming ? chunk.operators.begin : chunk.operators.end;
    for (int i = 0; i < cut; ++i) {
      if (lowering_.use(i).last_consumer >= cut) result.operators.push_back(i);
    }
    const Choices& choices = lowering_.choices();
    const int part = part_of(choices, at().pp, chunk.index);
    const ChunkPlace place = place_of_part(choices, incoming ? part - 1 : part + 1);
    Coordinates other = at();
    other.pp = place.stage;
    result.within = other.pp == at().pp;
    if (!result.within) result.peer = rank_of(lowering_.plan(), other);
    result.returns = place.chunk == chunk.index && (place.stage > at().pp) == incoming && !result.within;
    result.upstream_chunk = incoming ? place.chunk : chunk.index;
    return result;
  }

  static Stream stream_of(const Boundary& boundary, bool send, bool backward) {
    if (boundary.returns && send)
      return backward ? Stream::pipeline_return_backward : Stream::pipeline_return_forward;
    if (boundary.returns)
      return backward ? Stream::pipeline_return_backward_receive : Stream::pipeline_return_forward_receive;
    if (send) return backward ? Stream::pipeline_backward : Stream::pipeline_forward;
    return backward ? Stream::pipeline_backward_receive : Stream::pipeline_forward_receive;
  }

  // One message for each tensor that crosses.
  Instruction exchange(const Boundary& boundary, bool send, bool backward, int micro_batch) const {
    Instruction instruction;
    instruction.op = Op::exchange;
    instruction.stream = stream_of(boundary, send, backward);
    instruction.form = Parallelism::pipeline;
    instruction.micro_batch = micro_batch;
    instruction.dtype = lowering_.plan().activation_type();
    const auto crossing = static_cast<int>(boundary.operators.size());
    instruction.transfers.reserve(boundary.operators.size());
    for (int j = 0; j < crossing; ++j) {
      const int op = boundary.operators[static_cast<std::size_t>(j)];
      const TensorRef tensor{backward ? TensorKind::activation_gradient : TensorKind::activation, op,
                             micro_batch};
      const int message =
          2 * (micro_batch * lowering_.choices().interleave + boundary.upstream_chunk) + (backward ? 1 : 0);
      const double bytes =
          message_share(lowering_.plan()) * output_bytes(lowering_.op(op), lowering_.shard());
      instruction.transfers.push_back({boundary.peer, bytes, message * crossing + j, send, tensor});
      instruction.bytes += bytes;
      (send ? instruction.reads : instruction.writes).push_back(tensor);
    }
    return instruction;
  }

  void receive(std::size_t index) {
    const Slot& slot = slots_[index];
    if (slot.kind == SlotKind::backward_weight || received_[index] >= 0) return;
    const bool backward = slot.kind != SlotKind::forward;
    const Boundary& boundary = (backward ? outgoing_ : incoming_)[static_cast<std::size_t>(slot.chunk)];
    if (boundary.peer < 0) return;
    received_[index] = lowering_.emit(exchange(boundary, /*send=*/false, backward, slot.micro_batch));
  }

  void send(const Slot& slot, std::vector<std::uint32_t> after) {
    const bool backward = slot.kind != SlotKind::forward;
    const Boundary& boundary = (backward ? incoming_ : outgoing_)[static_cast<std::size_t>(slot.chunk)];
    if (boundary.within) {
      // The compute stream is in order as it is.
      std::erase_if(after, [&](std::uint32_t ended) {
        return lowering_.program.instructions[ended].stream == Stream::compute;
      });
      if (!after.empty()) handed_on_[{backward, slot.micro_batch}] = std::move(after);
    }
    if (boundary.peer < 0) return;
    Instruction instruction = exchange(boundary, /*send=*/true, backward, slot.micro_batch);
    instruction.after = std::move(after);
    lowering_.emit(std::move(instruction));
  }

  // What the first stage will load in the next step, from the node's storage. Nothing in this step waits for
  // it but its end: this step's loads have a stream of their own.
  void read_ahead() {
    const double bytes = lowering_.plan().read_ahead_bytes(at().dp);
    if (bytes <= 0 || at().pp > 0 || (has_one_process(lowering_) && at().dp > 0)) return;
    Instruction instruction;
    instruction.op = Op::load;
    instruction.stream = Stream::storage;
    instruction.bytes = bytes;
    instruction.writes.push_back({TensorKind::next_batch, 0, -1});
    lowering_.emit(std::move(instruction));
  }

  // The micro-batch's tokens where the first part of the model is, its labels where the last is; both at once
  // where one stage has both.
  std::int64_t load(const Chunk& chunk, int micro_batch) {
    const bool both = ends_meet(lowering_.choices());
    if (!chunk.first && (!chunk.last || both)) return -1;
    Instruction instruction;
    instruction.op = Op::load;
    instruction.stream = Stream::input;
    instruction.micro_batch = micro_batch;
    instruction.dtype = DType::int32;
    if (lowering_.plan().job->workload.transformer && lowering_.plan().job->training.sample_bytes == 0) {
      instruction.bytes = lowering_.shard().rows * bytes_of(DType::int32) * (both ? 2 : 1);
    }
    instruction.writes.push_back({TensorKind::batch, 0, micro_batch});
    return lowering_.emit(std::move(instruction));
  }

  // A slot's pass on its way into the program.
  struct Stamping {
    std::size_t slot = 0;
    std::vector<std::uint32_t> entry;    // what the pass as a whole waits for
    std::vector<std::uint32_t> emitted;  // by pattern
  };

  bool done(const Stamping& at) const {
    return at.emitted.size() == pass_of(slots_[at.slot]).patterns.size();
  }

  Stamping begin(std::size_t index) {
    const Slot& slot = slots_[index];
    std::vector<std::uint32_t> entry;
    if (received_[index] >= 0) entry.push_back(static_cast<std::uint32_t>(received_[index]));
    const bool forward = slot.kind == SlotKind::forward;
    if ((forward ? incoming_ : outgoing_)[static_cast<std::size_t>(slot.chunk)].within) {
      const auto handed = handed_on_.find({!forward, slot.micro_batch});
      if (handed != handed_on_.end() && slot.kind != SlotKind::backward_weight) entry = handed->second;
    }
    if (forward) {
      const bool one_process = has_one_process(lowering_);
      std::int64_t loaded = -1;
      if (!one_process || at().dp == 0) loaded = load(chunk_of(slot), slot.micro_batch);
      if (one_process) {
        entry = replicate(lowering_, slot.micro_batch, loaded);
      } else if (loaded >= 0) {
        entry.push_back(static_cast<std::uint32_t>(loaded));
      }
    }
    entry.insert(entry.end(), carried_.begin(), carried_.end());
    carried_.clear();
    if (slot.kind != SlotKind::backward_weight) gather_parts(slot, &entry);
    return {index, std::move(entry), {}};
  }

  // Of a message of which each tensor rank received its part: what was waited for is waited for by that.
  void gather_parts(const Slot& slot, std::vector<std::uint32_t>* entry) {
    const bool backward = slot.kind != SlotKind::forward;
    const Boundary& boundary = (backward ? outgoing_ : incoming_)[static_cast<std::size_t>(slot.chunk)];
    if (boundary.peer < 0 || message_share(lowering_.plan()) == 1) return;
    for (const int op : boundary.operators) {
      Instruction gather;
      gather.op = Op::collective;
      gather.stream = Stream::tensor;
      gather.form = Parallelism::pipeline;
      gather.collective = CollectiveKind::all_gather;
      gather.group = lowering_.group(GroupKind::tensor);
      gather.dtype = lowering_.plan().activation_type();
      gather.bytes = output_bytes(lowering_.op(op), lowering_.shard());
      gather.micro_batch = slot.micro_batch;
      const TensorRef tensor{backward ? TensorKind::activation_gradient : TensorKind::activation, op,
                             slot.micro_batch};
      gather.reads.push_back(tensor);
      gather.writes.push_back(tensor);
      gather.after = *entry;
      *entry = {lowering_.emit(std::move(gather))};
    }
  }

  std::vector<std::uint32_t> run_slot(std::size_t index) {
    Stamping stamping = begin(index);
    while (!done(stamping)) stamp(stamping);
    std::vector<std::uint32_t> ends = end(stamping);
    if (slots_[index].kind == SlotKind::forward && has_one_process(lowering_))
      gather_loss(lowering_, slots_[index].micro_batch);
    return ends;
  }

  // A forward and the backward behind it, side by side: each computes while the other's tokens travel. The
  // backward begins with what it has to send, so that of a layer its experts, the forward's experts, its
  // attention and the forward's next follow each other, as in DualPipe (arXiv 2412.19437, figure 4).
  void run_pair(std::size_t index) {
    Stamping forward = begin(index);
    Stamping backward = begin(index + 1);
    if (index + 2 < slots_.size()) receive(index + 2);
    while (!done(forward) || !done(backward)) {
      until_traffic(backward);
      until_traffic(forward);
    }
    send(slots_[index], end(forward));
    send(slots_[index + 1], end(backward));
  }

  // As far as the end of its next communication between experts.
  void until_traffic(Stamping& stamping) {
    const Pass& pass = pass_of(slots_[stamping.slot]);
    const auto travels = [&](std::size_t i) { return pass.patterns[i].instruction.stream == Stream::expert; };
    while (!done(stamping)) {
      stamp(stamping);
      const std::size_t next = stamping.emitted.size();
      if (travels(next - 1) && (done(stamping) || !travels(next))) return;
    }
  }

  // Emits the next pattern of the slot's pass for its micro-batch.
  void stamp(Stamping& stamping) {
    const auto slot_index = static_cast<int>(stamping.slot);
    const Slot& slot = slots_[stamping.slot];
    const std::size_t i = stamping.emitted.size();
    const Pattern& pattern = pass_of(slot).patterns[i];
    Instruction instruction = pattern.instruction;
    instruction.micro_batch = slot.micro_batch;
    for (auto* list : {&instruction.reads, &instruction.writes}) {
      for (TensorRef& tensor : *list) {
        if (tensor.micro_batch == kOpenMicroBatch) tensor.micro_batch = slot.micro_batch;
      }
    }
    for (Transfer& transfer : instruction.transfers) {
      transfer.tag += slot.micro_batch * pattern.tag_stride;
      transfer.tensor.micro_batch = slot.micro_batch;
    }
    const std::vector<std::uint32_t>& entry = stamping.entry;
    instruction.after.reserve(pattern.after.size() + (pattern.at_entry ? entry.size() + 1 : 0));
    for (const int other : pattern.after) {
      instruction.after.push_back(stamping.emitted[static_cast<std::size_t>(other)]);
    }
    if (pattern.at_entry) {
      instruction.after.insert(instruction.after.end(), entry.begin(), entry.end());
      // Communication that opens a pass works on what earlier computations left behind.
      if (instruction.stream != Stream::compute && lowering_.has_compute()) {
        instruction.after.push_back(lowering_.last_compute());
      }
    }
    if (!pattern.needs.empty()) parameters_.before(slot_index, static_cast<int>(i), &instruction.after);
    std::sort(instruction.after.begin(), instruction.after.end());
    const std::uint32_t index = lowering_.emit(std::move(instruction));
    stamping.emitted.push_back(index);
    if (!lowering_.choices().overlap_grad_reduce) return;
    for (const int bucket : pattern.completes) reduce(bucket, slot_index, index);
  }

  // Of a slot whose pass is emitted: the instructions that end it.
  std::vector<std::uint32_t> end(const Stamping& stamping) {
    const Pass& pass = pass_of(slots_[stamping.slot]);
    if (!lowering_.choices().overlap_grad_reduce) {
      for (const Pattern& pattern : pass.patterns) {
        for (const int bucket : pattern.completes) {
          if (!reduces_every_micro_batch(lowering_, bucket)) continue;
          reduce(bucket, static_cast<int>(stamping.slot), lowering_.last_compute());
          carried_.push_back(static_cast<std::uint32_t>(reduced_[static_cast<std::size_t>(bucket)]));
        }
      }
    }
    std::vector<std::uint32_t> ends;
    for (const int last : pass.exit) ends.push_back(stamping.emitted[static_cast<std::size_t>(last)]);
    return ends;
  }

  // The bucket's gradients of this slot's micro-batch are complete.
  void reduce(int bucket, int slot_index, std::uint32_t maker) {
    const auto b = static_cast<std::size_t>(bucket);
    if (lowering_.tied_bucket[b] || lowering_.program.buckets[b].group < 0) return;
    const Slot& slot = slots_[static_cast<std::size_t>(slot_index)];
    const bool last = last_backward_[static_cast<std::size_t>(slot.chunk)] == slot_index;
    const bool each = reduces_every_micro_batch(lowering_, bucket);
    if (!each && !last) return;
    std::vector<std::uint32_t> after;
    if (reduced_[b] >= 0) after.push_back(static_cast<std::uint32_t>(reduced_[b]));  // which it adds to
    after.push_back(maker);
    reduced_[b] = reduce_bucket(lowering_, bucket, each ? slot.micro_batch : -1, last, std::move(after));
  }

  Lowering& lowering_;
  std::vector<Slot> slots_;
  std::vector<std::int64_t> received_;  // by slot
  std::vector<std::int64_t> reduced_;   // by bucket
  std::vector<int> last_backward_;      // by chunk: slot after which its gradients are complete
  std::vector<Boundary> incoming_;      // by chunk
  std::vector<Boundary> outgoing_;
  // By direction (going back?) and micro-batch: what else ended a pass whose result the next chunk, of this
  // stage too, begins with.
  std::map<std::pair<bool, int>, std::vector<std::uint32_t>> handed_on_;
  std::vector<std::uint32_t> carried_;  // what the next slot waits for where no overlap is wanted
  ParameterGather parameters_;
};

}  // namespace

std::vector<std::int64_t> run_schedule(Lowering& lowering) {
  return ScheduleRun(lowering).run();
}

}  // namespace orrery::internal
