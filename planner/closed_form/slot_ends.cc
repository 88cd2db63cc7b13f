#include "planner/closed_form/slot_ends.h"

#include <algorithm>

#include "planner/closed_form/pipeline_cut.h"

namespace orrery::planner {
namespace {

// Of one_f_one_b_ends: micro-batches that are laid for each stage.
constexpr int kLaidRounds = 3;

// When each stage has run its slots, its chunks taking `times`.
std::vector<double> laid(const SlotOrder& order, const std::vector<std::vector<ChunkSlot>>& times,
                         const std::vector<double>& hops) {
  std::vector<double> ends(order.results()), free_of(times.size(), 0);
  const std::vector<OrderedSlot>& slots = order.slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const OrderedSlot& own = slots[i];
    const std::vector<ChunkSlot>& chunks = times[static_cast<std::size_t>(own.stage)];
    const ChunkSlot& t = chunks[static_cast<std::size_t>(own.slot.chunk)];
    double& free_s = free_of[static_cast<std::size_t>(own.stage)];
    const auto end_of = [&](const OrderedSlot& of) -> double& {
      return ends[static_cast<std::size_t>(of.result)];
    };
    double begin = std::max(free_s, ready_s(own, ends, hops));
    if (own.slot.with_next) {
      const OrderedSlot& back = slots[++i];
      const ChunkSlot& other = chunks[static_cast<std::size_t>(back.slot.chunk)];
      begin = std::max(begin, ready_s(back, ends, hops));
      const double gain = std::min(t.paired_gain, other.paired_gain);
      end_of(own) = begin + t.forward + other.backward_busy - gain;
      end_of(back) = begin + t.forward_busy + other.backward - gain;
      free_s = begin + t.forward_busy + other.backward_busy - gain;
      continue;
    }
    switch (own.slot.kind) {
      case SlotKind::forward:
        end_of(own) = begin + t.forward;
        free_s = begin + t.forward_busy;
        break;
      case SlotKind::backward:
        end_of(own) = begin + t.backward;
        free_s = begin + t.backward_busy;
        break;
      case SlotKind::backward_input:
        end_of(own) = begin + t.backward - t.weight;
        free_s = begin + t.backward_busy - t.weight;
        break;
      case SlotKind::backward_weight:
        free_s = begin + t.weight;
        break;
    }
  }
  return free_of;
}

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
                                 const std::vector<double>& hops, double micro_batches, SlotOrders* orders) {
  const int least = micro_batch_rule(c.schedule, c.pp).least;
  const int few = least + c.pp, more = few + c.pp;
  if (micro_batches <= more)
    return laid(orders->of(c, std::max(least, static_cast<int>(micro_batches))), times, hops);
  const std::vector<double> shorter = laid(orders->of(c, few), times, hops);
  std::vector<double> ends = laid(orders->of(c, more), times, hops);
  for (std::size_t stage = 0; stage < ends.size(); ++stage)
    ends[stage] += (ends[stage] - shorter[stage]) * (micro_batches - more) / (more - few);
  return ends;
}

}  // namespace orrery::planner
