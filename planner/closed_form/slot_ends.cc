#include "planner/closed_form/slot_ends.h"

#include <algorithm>

#include "planner/closed_form/pipeline_cut.h"

namespace orrery::planner {
namespace {

// Of one_f_one_b_ends: micro-batches that are laid for each stage.
constexpr int kLaidRounds = 3;

}  // namespace

SlotEnds::SlotEnds(const Choices& choices, int micro_batches, const std::vector<double>& hops)
    : choices_(choices),
      micro_batches_(micro_batches),
      forward_(static_cast<std::size_t>(parts_of(choices)) * static_cast<std::size_t>(micro_batches),
               kSlotNotYet),
      backward_(forward_) {
  for (int part = 0; part < parts_of(choices); ++part) {
    const ChunkPlace here = place_of_part(choices, part);
    const ChunkPlace next = part + 1 < parts_of(choices) ? place_of_part(choices, part + 1) : here;
    // Hops are numbered by the stage before them; round the ring by the last one.
    const int hop = here.chunk == next.chunk ? std::min(here.stage, next.stage) : here.stage;
    hop_behind_.push_back(here.stage == next.stage ? 0 : hops[static_cast<std::size_t>(hop)]);
  }
}

double SlotEnds::ready(const Slot& slot, int stage) {
  const auto sent = [](double end, double hop) { return end == kSlotNotYet ? kSlotNotYet : end + hop; };
  const int part = part_of(choices_, stage, slot.chunk);
  if (slot.kind == SlotKind::backward_weight) return 0;  // behind its other half
  if (slot.kind == SlotKind::forward) {
    if (part == 0) return 0;
    return sent(at(false, part - 1, slot.micro_batch), hop_behind_[static_cast<std::size_t>(part) - 1]);
  }
  if (part + 1 == parts_of(choices_)) return at(false, part, slot.micro_batch);
  return sent(at(true, part + 1, slot.micro_batch), hop_behind_[static_cast<std::size_t>(part)]);
}

namespace {

class ChunkLayout {
 public:
  ChunkLayout(const Choices& c, const std::vector<std::vector<ChunkSlot>>& times,
              const std::vector<double>& hops, int micro_batches)
      : times_(times), ends_(c, micro_batches, hops) {
    for (int stage = 0; stage < c.pp; ++stage) {
      slots_.push_back(
          schedule_slots(c.schedule, stage, c.pp, c.interleave, micro_batches, c.overlap_experts));
    }
    next_.assign(slots_.size(), 0);
    free_s_.assign(slots_.size(), 0);
  }

  std::vector<double> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t stage = 0; stage < slots_.size(); ++stage)
        while (next_[stage] < slots_[stage].size() && step(stage)) moved = true;
    }
    return std::move(free_s_);
  }

 private:
  bool step(std::size_t stage) {
    const Slot& slot = slots_[stage][next_[stage]];
    const double ready = ends_.ready(slot, static_cast<int>(stage));
    if (ready == kSlotNotYet) return false;
    const ChunkSlot& t = times_[stage][static_cast<std::size_t>(slot.chunk)];
    double& free_s = free_s_[stage];
    const auto end_of = [&](const Slot& of) -> double& {
      return ends_.of(of.kind != SlotKind::forward, static_cast<int>(stage), of.chunk, of.micro_batch);
    };
    double begin = std::max(free_s, ready);
    if (slot.with_next) {
      const Slot& back = slots_[stage][next_[stage] + 1];
      const double ready_back = ends_.ready(back, static_cast<int>(stage));
      if (ready_back == kSlotNotYet) return false;
      const ChunkSlot& other = times_[stage][static_cast<std::size_t>(back.chunk)];
      begin = std::max(begin, ready_back);
      const double gain = std::min(t.paired_gain, other.paired_gain);
      end_of(slot) = begin + t.forward + other.backward_busy - gain;
      end_of(back) = begin + t.forward_busy + other.backward - gain;
      free_s = begin + t.forward_busy + other.backward_busy - gain;
      next_[stage] += 2;
      return true;
    }
    switch (slot.kind) {
      case SlotKind::forward:
        end_of(slot) = begin + t.forward;
        free_s = begin + t.forward_busy;
        break;
      case SlotKind::backward:
        end_of(slot) = begin + t.backward;
        free_s = begin + t.backward_busy;
        break;
      case SlotKind::backward_input:
        end_of(slot) = begin + t.backward - t.weight;
        free_s = begin + t.backward_busy - t.weight;
        break;
      case SlotKind::backward_weight:
        free_s = begin + t.weight;
        break;
    }
    ++next_[stage];
    return true;
  }

  const std::vector<std::vector<ChunkSlot>>& times_;
  SlotEnds ends_;
  std::vector<std::vector<Slot>> slots_;
  std::vector<std::size_t> next_;
  std::vector<double> free_s_;
};

}  // namespace

std::vector<double> one_f_one_b_ends(const std::vector<StageSlot>& stages, double micro_batches,
                                     bool weights_wait) {
  const auto count = static_cast<int>(stages.size());
  const int m = static_cast<int>(std::min(micro_batches, static_cast<double>(kLaidRounds * count)));
  std::vector<double> free_s(stages.size(), 0);  // when the stage's next slot may start
  // When the results of its last forward and backward are there for its neighbours.
  std::vector<double> there(stages.size(), 0), back(stages.size(), 0);
  const auto forward = [&](std::size_t s, double ready) {
    const double begin = std::max(free_s[s], ready);
    free_s[s] = begin + stages[s].forward_busy;
    there[s] = begin + stages[s].forward + stages[s].hop;
  };
  const auto warm_up = [&](int stage) { return std::min(count - 1 - stage, m); };
  // Each stage has one warm-up forward more than the next: they are all laid before the first backward, and
  // then the stage before is always a forward ahead.
  std::vector<double> sent(static_cast<std::size_t>(m), 0), next_sent = sent;  // to the next stage
  for (int stage = 0; stage < count; ++stage) {
    for (int i = 0; i < warm_up(stage); ++i) {
      forward(static_cast<std::size_t>(stage), stage > 0 ? sent[static_cast<std::size_t>(i)] : 0);
      next_sent[static_cast<std::size_t>(i)] = there[static_cast<std::size_t>(stage)];
    }
    std::swap(sent, next_sent);
  }
  for (int i = 0; i < m; ++i) {
    double came = 0;  // the forward that the stage before ran in its last turn
    for (int stage = 0; stage < count; ++stage) {
      const double before = came;
      came = there[static_cast<std::size_t>(stage)];
      if (i + warm_up(stage) < m) forward(static_cast<std::size_t>(stage), before);
    }
    for (int stage = count - 1; stage >= 0; --stage) {
      const auto s = static_cast<std::size_t>(stage);
      const double begin = std::max(free_s[s], stage + 1 < count ? back[s + 1] + stages[s].hop : there[s]);
      free_s[s] = begin + stages[s].backward_busy;
      back[s] = begin + stages[s].backward;
      if (weights_wait && i >= stage) free_s[s] += stages[s].weight;
    }
  }
  double more_s = 0;  // of the micro-batches that were not laid
  if (micro_batches > m) {
    std::vector<PipelineSlot> slots;
    for (const StageSlot& s : stages)
      slots.push_back({s.forward_busy + s.backward_busy + s.weight, s.forward + s.backward, s.hop, s.weight});
    more_s = (micro_batches - m) * period_1f1b_s(slots);
  }
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (weights_wait) free_s[s] += stages[s].weight * std::min(static_cast<int>(s), m);
    free_s[s] = std::max(free_s[s], back[s]) + more_s;
  }
  return free_s;
}

std::vector<double> chunked_ends(const Choices& c, const std::vector<std::vector<ChunkSlot>>& times,
                                 const std::vector<double>& hops, double micro_batches) {
  const int least = micro_batch_rule(c.schedule, c.pp).least;
  const int few = least + c.pp, more = few + c.pp;
  if (micro_batches <= more)
    return ChunkLayout(c, times, hops, std::max(least, static_cast<int>(micro_batches))).run();
  const std::vector<double> shorter = ChunkLayout(c, times, hops, few).run();
  std::vector<double> ends = ChunkLayout(c, times, hops, more).run();
  for (std::size_t stage = 0; stage < ends.size(); ++stage)
    ends[stage] += (ends[stage] - shorter[stage]) * (micro_batches - more) / (more - few);
  return ends;
}

}  // namespace orrery::planner
