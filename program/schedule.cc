#include "program/schedule.h"

#include <algorithm>
#include <array>

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

// DualPipeV, step by step as its authors number them. Weights' gradients that wait do so in one queue.
class DualPipeV {
 public:
  DualPipeV(int stage, int stages, int micro_batches, bool paired)
      : behind_(stages - 1 - stage), before_(stage), micro_batches_(micro_batches), paired_(paired) {
    slots_.reserve(6 * static_cast<std::size_t>(micro_batches));
  }

  std::vector<Slot> run() {
    fill();
    for (int i = 0; i < steady(); ++i) {
      // The last stage starts its first backward when its forward has left, which is sooner.
      forward(0, i > 0 || behind_ > 0);
      backward(1);
      forward(1, true);
      backward(0);
    }
    drain();
    return std::move(slots_);
  }

  int pairs() const { return 2 * steady() - (behind_ == 0 ? 1 : 0) + behind_; }

 private:
  int steady() const { return micro_batches_ - 2 * (behind_ + before_ + 1) + before_ + 1; }

  void fill() {  // 1 to 3
    for (int i = 0; i < 2 * behind_; ++i) forward(0);
    for (int i = 0; i <= before_; ++i) {
      forward(0);
      forward(1);
    }
    for (int i = 0; i < behind_; ++i) {
      backward(1, /*split=*/true);
      weight();
      forward(1);
    }
  }

  void drain() {  // 5 to 8
    for (int i = 0; i < behind_; ++i) {
      backward(1);
      forward(1, true);
      backward(0);
    }
    // The second half of these passes leave their weights' gradients for when nothing else is to do.
    const int whole = before_ + 1;
    for (int i = 0; i < 2 * (before_ + 1); ++i) backward(i % 2 == 0 ? 1 : 0, i >= whole);
    for (int i = 0; i < behind_; ++i) {
      weight();
      backward(0, /*split=*/true);
    }
    for (int i = 0; i <= before_; ++i) weight();
  }

  void forward(int chunk, bool beside = false) {
    slots_.push_back(
        {SlotKind::forward, forwards_[static_cast<std::size_t>(chunk)]++, chunk, beside && paired_});
  }
  void backward(int chunk, bool split = false) {
    const int micro_batch = backwards_[static_cast<std::size_t>(chunk)]++;
    slots_.push_back({split ? SlotKind::backward_input : SlotKind::backward, micro_batch, chunk});
    if (split) waiting_.push_back({SlotKind::backward_weight, micro_batch, chunk});
  }
  void weight() { slots_.push_back(waiting_[weights_++]); }

  int behind_, before_;  // stages
  int micro_batches_;
  bool paired_;
  std::array<int, 2> forwards_ = {}, backwards_ = {};  // by chunk
  std::vector<Slot> waiting_;
  std::size_t weights_ = 0;  // of these that have run
  std::vector<Slot> slots_;
};

}  // namespace

std::vector<Slot> schedule_slots(Schedule schedule, int stage, int stages, int chunks, int micro_batches,
                                 bool paired) {
  ORRERY_CHECK(stage >= 0 && stage < stages && chunks >= 1 && micro_batches >= 0, "schedule arguments");
  ORRERY_CHECK(fixed_chunks(schedule) == 0 || chunks == fixed_chunks(schedule), "chunks of the schedule");
  ORRERY_CHECK(!paired || fixed_chunks(schedule) != 1 || stages == 1,
               "slots are paired on one stage, interleaved or in a V");
  switch (schedule) {
    case Schedule::gpipe:
      return gpipe(micro_batches);
    case Schedule::one_f_one_b:
      return one_f_one_b(stage, stages, micro_batches, paired);
    case Schedule::interleaved:
      return interleaved(stage, stages, chunks, micro_batches, paired);
    case Schedule::zero_bubble:
      return zero_bubble_h1(stage, stages, micro_batches);
    case Schedule::dualpipe_v:
      ORRERY_CHECK(micro_batches >= micro_batch_rule(schedule, stages).least, "micro-batches of dualpipe-v");
      return DualPipeV(stage, stages, micro_batches, paired).run();
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
    case Schedule::dualpipe_v:
      return std::min(2 * stages + 1, 2 * micro_batches);
  }
  throw InternalError("unknown schedule");
}

int paired_slots(const Plan& plan, int stage, std::int64_t micro_batches) {
  const Choices& c = plan.choices;
  if (!c.overlap_experts) return 0;
  if (c.schedule == Schedule::dualpipe_v)
    return DualPipeV(stage, c.pp, static_cast<int>(micro_batches), true).pairs();
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

int layers_of_largest_stage(const Plan& plan) {
  int most = 0;
  for (int stage = 0; stage < plan.choices.pp; ++stage) {
    int layers = 0;
    for (int chunk = 0; chunk < plan.choices.interleave; ++chunk) {
      const LayerRange range = layers_of(plan, stage, chunk);
      layers += range.end - range.begin;
    }
    most = std::max(most, layers);
  }
  return most;
}

}  // namespace orrery
