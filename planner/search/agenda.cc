#include "planner/search/agenda.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace orrery::planner {
namespace {

// Choices that are looked at before any detail. Of those whose expectation is so near the best's the response
// to what is not known is asked for.
constexpr std::size_t kCompared = 32;
constexpr double kNear = 1.2;

// Of a choice, another cut that is expected within so much of the best is looked at before what differs in
// traffic alone; of at most so many.
constexpr double kCutNear = 1.03;
constexpr std::size_t kCutLeaders = 256;

// Alike but for details and for what moves a step by little.
bool same_kind(const Choices& a, const Choices& b) {
  return a.tp == b.tp && a.pp == b.pp && a.dp == b.dp && a.cp == b.cp && a.ep == b.ep &&
         a.micro_batch == b.micro_batch && a.schedule == b.schedule && (a.zero == 3) == (b.zero == 3) &&
         a.sequence_parallel == b.sequence_parallel;
}

// Of what makes the closed form err: its parts are alike in both. 0 where nothing is.
double likeness(const Choices& a, const Choices& b) {
  return 2.0 * (a.tp == b.tp) + 2.0 * (a.pp == b.pp) + 2.0 * (a.cp == b.cp) + 2.0 * (a.ep == b.ep) +
         2.0 * (a.schedule == b.schedule) + 1.0 * (a.interleave == b.interleave) +
         1.0 * (a.micro_batch == b.micro_batch) + 2.0 * ((a.zero == 3) == (b.zero == 3)) +
         0.5 * (a.zero == b.zero) +
         0.5 * (a.recompute == b.recompute && a.recompute_modules == b.recompute_modules) +
         0.5 * (a.shard_group == b.shard_group) + 1.0 * (a.sequence_parallel == b.sequence_parallel) +
         1.0 * (a.overlap_experts == b.overlap_experts) + 0.5 * (a.order == b.order) +
         0.25 * (a.stage_layers == b.stage_layers);
}

}  // namespace

double grain_of(double value) {
  constexpr int kBits = 30;
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::round(std::ldexp(mantissa, kBits)), exponent - kBits);
}

bool same_choice(const Choices& a, const Choices& b) {
  // How many layers are recomputed is what memory leaves: none, some or all are one choice.
  if ((a.recompute == Recompute::selective) != (b.recompute == Recompute::selective)) return false;
  const auto choice = [](const Choices& c) {
    return std::tie(c.tp, c.pp, c.dp, c.cp, c.ep, c.etp, c.degrees, c.micro_batch, c.schedule, c.interleave,
                    c.recompute_modules, c.zero, c.shard_group, c.sequence_parallel, c.overlap_experts,
                    c.grad_compression, c.sync, c.servers, c.replica_batches);
  };
  return choice(a) == choice(b);
}

Agenda::Agenda(const Candidates& candidates, const std::function<double(const Choices&)>& mean_factor,
               std::function<double(const Candidate&)> slot_bound)
    : candidates_(candidates), slot_bound_(std::move(slot_bound)) {
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : candidates.promising) {
    all_.push_back({&candidate});
    all_.back().bound = candidate.bound;
    least = std::min(least, candidate.expected);
  }
  for (Open& open : all_)
    if (open.candidate->expected <= kNear * least) tighten(&open);
  // Equal values (memory ties) go by time; of equal times (devices that starve) the one with more samples a
  // pass is first, then the order of the space.
  std::stable_sort(all_.begin(), all_.end(), [](const Open& a, const Open& b) {
    const auto key = [](const Open& open) {
      return std::make_tuple(grain_of(open.nominal()), grain_of(open.candidate->times.estimate_s),
                             -open.candidate->choices.micro_batch);
    };
    return key(a) < key(b);
  });
  std::vector<Open*> found;
  for (Open& open : all_) {
    if (found.size() >= kCompared) break;
    open.leader = std::none_of(found.begin(), found.end(), [&](const Open* other) {
      return same_choice(open.candidate->choices, other->candidate->choices);
    });
    if (open.leader) found.push_back(&open);
  }
  find_cut_leaders();
  if (!mean_factor) return;
  for (Open* open : found) {
    if (open->nominal() > kNear * all_.front().nominal()) break;
    open->compared = true;
    open->factor = mean_factor(open->candidate->choices);
  }
  for (Open& open : all_)
    if (!open.compared) open.factor = found.front()->factor;
}

void Agenda::find_cut_leaders() {
  std::vector<const Open*> found;
  for (Open& open : all_) {
    if (open.nominal() > kCutNear * all_.front().nominal() || found.size() >= kCutLeaders) break;
    const Choices& choices = open.candidate->choices;
    open.cut_leader = std::none_of(found.begin(), found.end(), [&](const Open* other) {
      const Choices& theirs = other->candidate->choices;
      return choices.stage_layers == theirs.stage_layers && same_choice(choices, theirs);
    });
    if (open.cut_leader) found.push_back(&open);
  }
}

std::vector<Agenda::Open*> Agenda::in_order() {
  std::vector<Open*> order;
  for (Open& open : all_)
    if (!open.simulated) order.push_back(&open);
  std::stable_sort(order.begin(), order.end(), [](const Open* a, const Open* b) {
    if (a->leader != b->leader) return a->leader;
    if (!a->leader && a->cut_leader != b->cut_leader) return a->cut_leader;
    return grain_of(a->expected()) < grain_of(b->expected());
  });
  return order;
}

std::vector<Agenda::Open*> Agenda::batch(std::size_t most, const std::function<bool(Open*)>& hopeless) {
  std::vector<Open*> chosen;
  const auto take = [&](Open* open) {
    if (chosen.size() < most && std::find(chosen.begin(), chosen.end(), open) == chosen.end() &&
        !hopeless(open))
      chosen.push_back(open);
  };
  std::vector<Open*> order = in_order();
  if (!begun_ && !order.empty()) {
    begun_ = true;
    take(order.front());
    take(&all_.front());
    // In case the closed form errs about a kind.
    for (Open* open : order)
      if (std::none_of(chosen.begin(), chosen.end(), [&](const Open* other) {
            return same_kind(open->candidate->choices, other->candidate->choices);
          }))
        take(open);
  }
  for (Open* open : order) take(open);
  return chosen;
}

std::vector<Agenda::Open*> Agenda::other_choices(std::size_t most, std::vector<Choices> known) {
  std::vector<Open*> chosen;
  for (Open* open : in_order()) {
    if (chosen.size() >= most) break;
    const Choices& choices = open->candidate->choices;
    if (std::any_of(known.begin(), known.end(),
                    [&](const Choices& other) { return same_choice(choices, other); }))
      continue;
    known.push_back(choices);
    chosen.push_back(open);
  }
  return chosen;
}

void Agenda::simulated(Open* open, double value) {
  open->simulated = true;
  const double correction = open->nominal() > 0 ? value / open->nominal() : 1;
  for (Open& other : all_) {
    if (other.simulated) continue;
    const double alike = likeness(open->candidate->choices, other.candidate->choices);
    if (alike <= other.likeness) continue;
    other.likeness = alike;
    other.correction = correction;
  }
}

void Agenda::tighten(Open* open) const {
  if (open->tight) return;
  open->tight = true;
  open->bound = std::max(open->bound, slot_bound_(*open->candidate));
}

std::vector<Agenda::Open*> Agenda::least_bounds(std::size_t most, double limit) {
  std::vector<Open*> open;
  for (Open& one : all_)
    if (!one.simulated && one.bound < limit) open.push_back(&one);
  // Whatever is among the least after it was raised is so indeed.
  const auto less = [](const Open* a, const Open* b) { return a->bound < b->bound; };
  std::vector<Open*> chosen;
  while (!open.empty() && chosen.size() < most) {
    const auto least = std::min_element(open.begin(), open.end(), less);
    if ((*least)->tight) {
      chosen.push_back(*least);
      open.erase(least);
      continue;
    }
    tighten(*least);
    if ((*least)->bound >= limit) open.erase(least);
  }
  return chosen;
}

double Agenda::least_open_bound() {
  const std::vector<Open*> least = least_bounds(1, candidates_.cut_bound);
  return least.empty() ? candidates_.cut_bound : least.front()->bound;
}

}  // namespace orrery::planner
