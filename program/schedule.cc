#include "program/schedule.h"

#include <algorithm>

#include "base/error.h"

namespace orrery {
namespace {

std::vector<Slot> gpipe(int micro_batches) {
  std::vector<Slot> slots;
  slots.reserve(2 * static_cast<std::size_t>(micro_batches));
  for (int i = 0; i < micro_batches; ++i) slots.push_back({SlotKind::forward, i, 0});
  for (int i = micro_batches - 1; i >= 0; --i) slots.push_back({SlotKind::backward, i, 0});
  return slots;
}

std::vector<Slot> one_f_one_b(int stage, int stages, int micro_batches, bool paired) {
  std::vector<Slot> slots;
  slots.reserve(2 * static_cast<std::size_t>(micro_batches));
  const int warm_up = std::min(stages - 1 - stage + (paired ? 1 : 0), micro_batches);
  for (int i = 0; i < warm_up; ++i) slots.push_back({SlotKind::forward, i, 0});
  for (int i = warm_up; i < micro_batches; ++i) {
    slots.push_back({SlotKind::forward, i, 0, paired});
    slots.push_back({SlotKind::backward, i - warm_up, 0});
  }
  for (int i = micro_batches - warm_up; i < micro_batches; ++i) slots.push_back({SlotKind::backward, i, 0});
  return slots;
}

int interleaved_warm_up(int stage, int stages, int chunks, int micro_batches, bool paired) {
  return std::min((stages - 1 - stage) * 2 + (chunks - 1) * stages + (paired ? 1 : 0),
                  micro_batches * chunks);
}

// The k-th forward of every stage is of the same micro-batch and chunk: `stages` micro-batches through chunk
// 0, the same through chunk 1, and so on. Backwards take the chunks from the last.
std::vector<Slot> interleaved(int stage, int stages, int chunks, int micro_batches, bool paired) {
  ORRERY_CHECK(micro_batches % stages == 0, "interleaved schedule needs a multiple of the stages");
  const int total = micro_batches * chunks;
  const auto slot = [&](int k, SlotKind kind) {
    const int round = k / (stages * chunks);
    const int within = k % (stages * chunks);
    const int chunk = within / stages;
    return Slot{kind, round * stages + within % stages,
                kind == SlotKind::forward ? chunk : chunks - 1 - chunk};
  };
  const int warm_up = interleaved_warm_up(stage, stages, chunks, micro_batches, paired);
  std::vector<Slot> slots;
  slots.reserve(2 * static_cast<std::size_t>(total));
  for (int k = 0; k < warm_up; ++k) slots.push_back(slot(k, SlotKind::forward));
  for (int k = warm_up; k < total; ++k) {
    slots.push_back(slot(k, SlotKind::forward));
    slots.back().with_next = paired;
    slots.push_back(slot(k - warm_up, SlotKind::backward));
  }
  for (int k = total - warm_up; k < total; ++k) slots.push_back(slot(k, SlotKind::backward));
  return slots;
}

// ZB-H1: 1F1B whose weight gradients wait: stage s runs that of a micro-batch s backwards later, so that
// every stage holds `stages` micro-batches, as 1F1B's first does. In the cool-down, where 1F1B would wait for
// the next gradient, weight gradients fill in.
std::vector<Slot> zero_bubble_h1(int stage, int stages, int micro_batches) {
  std::vector<Slot> slots;
  slots.reserve(3 * static_cast<std::size_t>(micro_batches));
  const int warm_up = std::min(stages - 1 - stage, micro_batches);
  const int delay = stage;
  int weights = 0;
  for (int i = 0; i < warm_up; ++i) slots.push_back({SlotKind::forward, i, 0});
  for (int i = 0; i < micro_batches; ++i) {
    if (i + warm_up < micro_batches) slots.push_back({SlotKind::forward, i + warm_up, 0});
    slots.push_back({SlotKind::backward_input, i, 0});
    if (i >= delay) slots.push_back({SlotKind::backward_weight, weights++, 0});
  }
  while (weights < micro_batches) slots.push_back({SlotKind::backward_weight, weights++, 0});
  return slots;
}

}  // namespace

std::vector<Slot> schedule_slots(Schedule schedule, int stage, int stages, int chunks, int micro_batches,
                                 bool paired) {
  ORRERY_CHECK(stage >= 0 && stage < stages && chunks >= 1 && micro_batches >= 0, "schedule arguments");
  ORRERY_CHECK(chunks == 1 || schedule == Schedule::interleaved, "only the interleaved schedule has chunks");
  ORRERY_CHECK(!paired || schedule == Schedule::interleaved || stages == 1,
               "slots are paired on one stage or interleaved");
  switch (schedule) {
    case Schedule::gpipe:
      return gpipe(micro_batches);
    case Schedule::one_f_one_b:
      return one_f_one_b(stage, stages, micro_batches, paired);
    case Schedule::interleaved:
      return interleaved(stage, stages, chunks, micro_batches, paired);
    case Schedule::zero_bubble:
      return zero_bubble_h1(stage, stages, micro_batches);
  }
  throw InternalError("unknown schedule");
}

int peak_in_flight(Schedule schedule, int stage, int stages, int chunks, int micro_batches, bool paired) {
  switch (schedule) {
    case Schedule::gpipe:
      return micro_batches;
    case Schedule::one_f_one_b:
      return std::min(stages - stage + (paired ? 1 : 0), micro_batches);
    case Schedule::interleaved:
      return std::min(interleaved_warm_up(stage, stages, chunks, micro_batches, paired) + 1,
                      micro_batches * chunks);
    case Schedule::zero_bubble:
      return std::min(stages, micro_batches);
  }
  throw InternalError("unknown schedule");
}

int paired_slots(const Plan& plan, int stage, std::int64_t micro_batches) {
  const Choices& c = plan.choices;
  if (!c.overlap_experts) return 0;
  const auto all = static_cast<int>(micro_batches) * c.interleave;
  const int warm_up =
      c.schedule == Schedule::interleaved
          ? interleaved_warm_up(stage, c.pp, c.interleave, static_cast<int>(micro_batches), true)
          : std::min(1, all);
  return all - warm_up;
}

bool pipeline_blocks(const Plan& plan) {
  const Schedule schedule = plan.choices.schedule;
  return !plan.job->runtime.overlap_pipeline && plan.choices.pp > 1 &&
         (schedule == Schedule::gpipe || schedule == Schedule::one_f_one_b);
}

}  // namespace orrery
