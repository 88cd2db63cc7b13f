#include "planner/search/systems.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "base/format.h"
#include "planner/closed_form/memory_model.h"

namespace orrery::planner {
namespace {

constexpr std::array<SystemKind, 4> kKinds = {SystemKind::all_reduce, SystemKind::sharded,
                                              SystemKind::three_d, SystemKind::async_servers};

// The pins that leave nothing but data parallelism; empty where the user's own forbid it.
std::optional<Pins> flat(Pins pins) {
  for (std::optional<int>* pin : {&pins.tp, &pins.pp, &pins.cp, &pins.ep, &pins.etp}) {
    if (pin->value_or(1) != 1) return {};
    *pin = 1;
  }
  if (pins.sync.value_or(Sync::all_reduce) != Sync::all_reduce) return {};
  return pins;
}

// What one device lacks, were the job split over all devices' data parallelism alone, however the batch
// divides: whole or sharded states, one sample at a time, everything recomputed.
double shortage(const std::shared_ptr<const Job>& job, int zero, double fillable) {
  Choices choices;
  choices.dp = job->cluster.devices();
  choices.zero = choices.dp > 1 ? zero : 0;
  choices.recompute = Recompute::full;
  const Memory memory = MemoryModel(job).predict(choices);
  return std::max(0.0, memory.needed - memory.capacity * fillable);
}

class BestOfKind {
 public:
  BestOfKind(const std::shared_ptr<const Job>& job, SystemKind kind, Estimator& estimator, double fillable)
      : job_(job), kind_(kind), estimator_(estimator), fillable_(fillable), memory_(job) {}

  // A plan of the kind that is known already.
  void start_from(const Choices& choices, double estimate_s) {
    best_ = choices;
    best_s_ = estimate_s;
  }

  // Families best bound first, until none can be below the best estimate.
  System find(const Pins& pins) {
    System system;
    system.kind = kind_;
    std::vector<BoundedFamily> families;
    try {
      families = families_by_bound(job_, pins, estimator_, [this](Choices core) {
        core.zero = 0;
        return (system_kind_of(core) == SystemKind::three_d) == (kind_ == SystemKind::three_d);
      });
    } catch (const UserError& error) {
      if (!best_) system.refusal = error.what();
    }
    for (const auto& [bound_s, family] : families) {
      if (bound_s >= best_s_) break;
      look_into(family);
    }
    system.choices = best_;
    if (!best_) {
      system.short_bytes = least_short_ < std::numeric_limits<double>::infinity() ? least_short_ : 0;
      if (system.refusal.empty() && system.short_bytes == 0) system.refusal = "pins and runtime leave none";
    }
    return system;
  }

 private:
  void look_into(const Family& family) {
    for (const Recomputed& recomputed : *family.recomputes) {
      for (const Sharding& sharding : *family.shardings) {
        Choices choices =
            family.plan(recomputed, sharding, family.overlaps->front(), family.buckets->front().bytes);
        if (system_kind_of(choices) != kind_) continue;
        const Memory memory = memory_.predict(choices);
        if (!memory.fits(fillable_)) {
          least_short_ = std::min(least_short_, memory.needed - memory.capacity * fillable_);
          continue;
        }
        for (std::size_t o = 0; o < family.overlaps->size(); ++o) {
          for (std::size_t b = 0; b < family.buckets->size(); ++b) {
            if (!family.distinct(sharding.zero, o, b)) continue;
            choices.overlap_grad_reduce = (*family.overlaps)[o];
            choices.bucket_bytes = (*family.buckets)[b].bytes;
            const Bound least = estimator_.lower_bound(choices);
            if (least.step_s >= best_s_) continue;
            const double estimate_s = estimator_.times(choices, least).estimate_s;
            if (estimate_s >= best_s_) continue;
            best_s_ = estimate_s;
            best_ = choices;
          }
        }
      }
    }
  }

  std::shared_ptr<const Job> job_;
  SystemKind kind_;
  Estimator& estimator_;
  double fillable_;
  MemoryModel memory_;
  double best_s_ = std::numeric_limits<double>::infinity();
  std::optional<Choices> best_;
  double least_short_ = std::numeric_limits<double>::infinity();
};

// Seconds of a step in which a node's ports carry what workers and servers beside them exchange with other
// nodes: every worker sends its gradients to all servers and receives all parameters, every server the
// reverse, so that (1 - devices / world) of both goes out and comes in for each device. On one node the
// devices' own links carry all but a rank's own share.
double server_traffic_s(const Job& job, const Plan& plan) {
  const double world = job.cluster.devices();
  const double bytes = static_cast<double>(job.workload.parameters()) *
                       (bytes_of(plan.gradient_type()) + bytes_of(plan.parameter_type()));
  double most = 0;
  for (const NodeGroup& group : job.cluster.groups) {
    const NodeType& node = group.node;
    const bool alone = job.cluster.nodes() == 1;
    const double rate =
        alone ? node.intra.bandwidth_bytes_per_s : node.nic.count * node.nic.bandwidth_bytes_per_s;
    const double out = alone ? bytes * (1 - 1 / world) : node.devices * bytes * (1 - node.devices / world);
    if (rate > 0) most = std::max(most, out / rate);
  }
  return most;
}

// How long the whole batch takes where nobody waits for anybody: each device takes the share that it is fast
// enough for, by its kind of node and by its own speed (Cluster::overrides).
class Unhindered {
 public:
  // `estimator`: of the job; enough where all devices are alike.
  Unhindered(const std::shared_ptr<const Job>& job, Estimator& estimator)
      : devices_(job->cluster.devices()), whole_(estimator) {
    if (job->cluster.groups.size() == 1 && job->cluster.overrides.empty()) return;
    int device = 0;
    for (const NodeGroup& group : job->cluster.groups) {
      auto alike = std::make_shared<Job>(*job);
      alike->cluster.overrides.clear();
      for (NodeGroup& other : alike->cluster.groups) other.node.profile = group.node.profile;
      Kind& kind = kinds_.emplace_back(Kind{0, std::make_unique<Estimator>(alike)});
      for (const int end = device + group.count * group.node.devices; device < end; ++device)
        kind.speeds += job->cluster.device_speed(device);
    }
  }

  double step_s(const Choices& choices) {
    if (kinds_.empty()) return whole_.layout_bound_s(choices);
    double rate = 0;
    for (const Kind& kind : kinds_) rate += kind.speeds / kind.estimator->layout_bound_s(choices);
    return devices_ / rate;
  }

 private:
  struct Kind {
    double speeds = 0;  // of its devices together, as parts of the nominal
    std::unique_ptr<Estimator> estimator;
  };
  int devices_ = 0;
  Estimator& whole_;
  std::vector<Kind> kinds_;
};

// The least that a step (as many samples as the batch has) takes with asynchronous servers: a bound in
// closed form, with the servers' states spread over all devices as with ZeRO-1.
System servers(const std::shared_ptr<const Job>& job, const Pins& pins, Estimator& estimator,
               double fillable) {
  System system;
  system.kind = SystemKind::async_servers;
  std::optional<Pins> alone = flat(pins);
  const int world = job->cluster.devices();
  const bool compressed = pins.grad_compression.value_or(Compression::none) != Compression::none;
  if (!alone || (pins.zero && *pins.zero != 0) || compressed || world == 1) {
    system.refusal = world == 1 ? "one device needs no servers" : "pins and runtime leave none";
    return system;
  }
  alone->zero = 0;
  alone->overlap_grad_reduce = true;
  alone->bucket_bytes = 0;
  MemoryModel memory(job);
  Unhindered unhindered(job, estimator);
  double least_short = std::numeric_limits<double>::infinity();
  double best_s = std::numeric_limits<double>::infinity();
  try {
    for_each_plan(job, *alone, [&](const Choices& choices) {
      if (!choices.replica_batches.empty()) return;               // anybody may draw a share
      if (choices.grad_compression != Compression::none) return;  // servers take gradients as they are
      Choices spread = choices;
      spread.zero = 1;
      const Memory needs = memory.predict(spread);
      if (!needs.fits(fillable)) {
        least_short = std::min(least_short, needs.needed - needs.capacity * fillable);
        return;
      }
      const double compute_s = unhindered.step_s(choices);
      if (compute_s >= best_s) return;
      best_s = compute_s;
      system.choices = choices;
      system.choices->sync = Sync::async_parameter_server;
      system.choices->servers = choices.dp;
      system.choices->staleness = pins.staleness.value_or(0);
    });
  } catch (const UserError& error) {
    system.refusal = error.what();
    system.short_bytes = shortage(job, 1, fillable);
    return system;
  }
  if (!system.choices) {
    if (least_short < std::numeric_limits<double>::infinity())
      system.short_bytes = least_short;
    else
      system.refusal = "the batch cannot be shared evenly";
    return system;
  }
  const double traffic_s = server_traffic_s(*job, Plan{job, *system.choices});
  system.bound_s = std::max(best_s, traffic_s);
  system.bound_by = traffic_s > best_s ? "traffic" : "computation";
  return system;
}

std::string short_refusal(const std::string& refusal) {
  const auto bracket = refusal.find(" (expected");
  return bracket == std::string::npos ? refusal : refusal.substr(0, bracket);
}

}  // namespace

std::vector<System> systems(const std::shared_ptr<const Job>& job, const Pins& pins,
                            const Candidates& candidates, Estimator& estimator, double fillable) {
  std::vector<System> found;
  for (const SystemKind kind : kKinds) {
    if (kind == SystemKind::async_servers) {
      found.push_back(servers(job, pins, estimator, fillable));
      continue;
    }
    System system;
    system.kind = kind;
    double best_s = std::numeric_limits<double>::infinity();
    for (const Candidate& candidate : candidates.promising) {
      if (system_kind_of(candidate.choices) != kind || candidate.times.estimate_s >= best_s) continue;
      best_s = candidate.times.estimate_s;
      system.choices = candidate.choices;
    }
    // What promised most of all plans need not be the best of its kind; of layers' splits, which are most of
    // a space, it stands for it.
    if (system.choices && kind == SystemKind::three_d) {
      found.push_back(std::move(system));
      continue;
    }
    std::optional<Pins> own = kind == SystemKind::three_d ? std::optional<Pins>(pins) : flat(pins);
    const int zero = pins.zero.value_or(kind == SystemKind::sharded ? 1 : 0);
    if (kind == SystemKind::all_reduce && own) own->zero = 0;
    if (!own || (kind != SystemKind::three_d && (zero > 0) != (kind == SystemKind::sharded))) {
      if (!system.choices) system.refusal = "pins and runtime leave none";
      found.push_back(std::move(system));
      continue;
    }
    BestOfKind best(job, kind, estimator, fillable);
    if (system.choices) best.start_from(*system.choices, best_s);
    found.push_back(best.find(*own));
    // Where the batch or a pin stands in the way, memory may as well: the weightier reason.
    if (kind != SystemKind::three_d && !found.back().choices && found.back().short_bytes == 0)
      found.back().short_bytes = shortage(job, kind == SystemKind::sharded ? 3 : 0, fillable);
  }
  return found;
}

std::string which_suits(const std::vector<System>& systems, const Evaluation& best) {
  const SystemKind suits = system_kind_of(best.plan.choices);
  std::string others, lacking;
  for (const System& system : systems) {
    if (system.kind == suits) continue;
    if (!system.step_time_s && system.bound_s == 0) {
      lacking += lacking.empty() ? "" : "; ";
      if (system.short_bytes > 0)
        lacking += fmt::format("{} would need {} more memory per device", spoken(system.kind),
                               human_bytes(system.short_bytes));
      else
        lacking += fmt::format("no {}: {}", spoken(system.kind), short_refusal(system.refusal));
      continue;
    }
    others += others.empty() ? ", against " : ", ";
    if (!system.step_time_s)
      others += fmt::format("at least {} with {} on every device ({} alone, closed form) and stale gradients",
                            human_seconds(system.bound_s), spoken(system.kind), system.bound_by);
    else if (system.kind == SystemKind::async_servers)
      others += fmt::format("{} for as many samples with {}, whose stale gradients may need more steps",
                            human_seconds(*system.step_time_s), spoken(system.kind));
    else
      others += fmt::format("{} with {}{}", human_seconds(*system.step_time_s), spoken(system.kind),
                            *system.step_time_s < best.step_time_s() ? " (faster as predicted)" : "");
  }
  return fmt::format("Best family: {}, {} a step{}{}{}.", spoken(suits), human_seconds(best.step_time_s()),
                     others, lacking.empty() ? "" : "; ", lacking);
}

}  // namespace orrery::planner
