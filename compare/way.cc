#include "compare/way.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "base/enum_names.h"
#include "base/error.h"
#include "base/parallel.h"
#include "compare/library.h"
#include "compare/plans.h"
#include "cost/group_shape.h"
#include "program/buckets.h"
#include "sim/scenario/folding.h"
#include "sim/simulator.h"

namespace orrery::comparison {
namespace {

constexpr std::array<std::string_view, 2> kFoundBy = {"simulation", "closed form"};

// Messages of a step between simulated workers and their servers that are simulated one by one; beyond, the
// closed form.
constexpr double kMostServerMessages = 4200;

bool is_simulated(const Plan& plan) {
  const Choices& choices = plan.choices;
  if (!choices.has_servers()) return true;
  const auto workers = static_cast<double>(sim::fold_ranks(plan).classes.size());
  return workers * choices.servers * (choices.asynchronous() ? 4 : 1) <= kMostServerMessages;
}

double step_sent_bytes(const Program& program) {
  double bytes = 0;
  const auto add = [&](const Instruction& instruction) {
    if (instruction.op == Op::exchange)
      for (const Transfer& transfer : instruction.transfers) bytes += transfer.send ? transfer.bytes : 0;
    if (instruction.op == Op::collective && instruction.group >= 0)
      bytes += sent_bytes(
          instruction.collective, instruction.bytes,
          static_cast<int>(program.groups[static_cast<std::size_t>(instruction.group)].ranks.size()));
  };
  for (const Instruction& instruction : program.instructions) add(instruction);
  for (const Service& service : program.services)
    for (const Instruction& instruction : service.instructions) add(instruction);
  return bytes;
}

RankTimes times_of(const Breakdown& parts) {
  RankTimes times;
  times.compute_s = parts.compute + parts.recompute + parts.optimizer;
  times.exposed_s =
      parts.data_comm + parts.tensor_comm + parts.pipeline_comm + parts.expert_comm + parts.context_comm;
  times.waiting_s = parts.bubble;
  times.other_s = parts.input + parts.other;
  return times;
}

// Of the last whole step of a simulated rank.
class LastSteps {
 public:
  explicit LastSteps(const sim::Simulation& simulation) : simulation_(simulation) {
    for (std::size_t i = 0; i < simulation.programs.size(); ++i) index_[simulation.programs[i].rank] = i;
    ends_.resize(simulation.programs.size());
    for (const TimelineEvent& event : simulation.timeline.events) {
      const std::size_t at = index_.at(event.rank);
      if (event.instruction >= simulation.programs[at].instructions.size()) continue;  // of a service
      std::vector<double>& ends = ends_[at];
      if (ends.size() <= static_cast<std::size_t>(event.step))
        ends.resize(static_cast<std::size_t>(event.step) + 1, 0);
      double& end = ends[static_cast<std::size_t>(event.step)];
      end = std::max(end, event.end_s);
    }
  }

  RankTimes of(std::size_t at, bool asynchronous) const {
    const std::vector<double>& ends = ends_[at];
    if (ends.empty()) return {};
    auto step = static_cast<int>(ends.size()) - 1;
    double end = ends.back();
    double begin = end - simulation_.step_time_s;
    if (simulation_.step_ends_s.size() == 1) {
      begin = 0;
      end = simulation_.step_ends_s.back();
    } else if (asynchronous && step > 0) {
      if (step > 1) --step;  // the last one may be unfinished
      end = ends[static_cast<std::size_t>(step)];
      begin = ends[static_cast<std::size_t>(step) - 1];
    }
    Breakdown parts = breakdown(simulation_.programs[at], simulation_.timeline, step, begin, end);
    if (asynchronous && parts.total() > 0) parts.scale(simulation_.step_time_s / parts.total());
    return times_of(parts);
  }

 private:
  const sim::Simulation& simulation_;
  std::map<int, std::size_t> index_;
  std::vector<std::vector<double>> ends_;
};

void read_simulation(const sim::Simulation& simulation, Way* way) {
  const Plan& plan = *way->plan;
  way->step_s = simulation.step_time_s;
  const sim::Folding folding = sim::fold_ranks(plan);
  const LastSteps last(simulation);
  std::vector<RankTimes> of_class;
  std::vector<double> sent;
  for (std::size_t i = 0; i < simulation.programs.size(); ++i) {
    of_class.push_back(last.of(i, plan.choices.asynchronous()));
    sent.push_back(step_sent_bytes(simulation.programs[i]));
  }
  for (const int c : folding.class_of) {
    way->ranks.push_back(of_class[static_cast<std::size_t>(c)]);
    way->wire_bytes += sent[static_cast<std::size_t>(c)] / way->devices;
  }
}

// What the cluster's library would have chosen, against what was asked for: by how much longer the
// all-reduces take.
double forced_excess(const Strategy& strategy, const Way& way) {
  const Plan& plan = *way.plan;
  const Mechanics& m = strategy.mechanics;
  if ((!m.algorithm && m.library == Library::own) || way.devices == 1) return 1;
  const Cluster& cluster = plan.job->cluster;
  std::vector<int> devices(static_cast<std::size_t>(way.devices));
  std::iota(devices.begin(), devices.end(), 0);
  const GroupShape shape = group_shape(Network(cluster), devices);
  const double bytes =
      plan.bucket_bytes() > 0 ? std::min(plan.bucket_bytes(), gradient_bytes(plan)) : gradient_bytes(plan);
  return all_reduce_s(m.library, bytes, shape, cluster, m.algorithm) /
         all_reduce_s(Library::own, bytes, shape, cluster, {});
}

// Every collective of the data stream as long as the forced algorithm takes: when the last of them ends, over
// when it ended.
double later_end_s(const sim::Simulation& simulation, double longer) {
  if (longer == 1) return 0;
  const Program& program = simulation.programs.front();
  double end_s = 0;
  double was_s = 0;
  for (const TimelineEvent& event : simulation.timeline.events) {
    if (event.rank != program.rank || event.step != 0 || event.instruction >= program.instructions.size())
      continue;
    const Instruction& instruction = program.instructions[event.instruction];
    if (instruction.op != Op::collective || instruction.stream != Stream::data) continue;
    // It began when its gradients were ready or when the one before had ended.
    const double ready_s = event.moving_since_s() > was_s + 1e-12 ? event.moving_since_s() : 0;
    end_s = std::max(end_s, ready_s) + longer * (event.end_s - event.moving_since_s());
    was_s = event.end_s;
  }
  return end_s - was_s;
}

void finish(const Strategy& strategy, const Job& job, Way* way) {
  const auto samples = static_cast<double>(job.training.global_batch);
  way->step_s = handed_step_s(strategy.rendezvous, way->step_s, way->devices, strategy.mechanics.dispatch_s);
  way->samples_per_s = way->step_s > 0 ? samples / way->step_s : 0;
  if (strategy.rendezvous == Rendezvous::first && way->devices > strategy.mechanics.backups)
    way->samples_per_s *= 1.0 - static_cast<double>(strategy.mechanics.backups) / way->devices;
}

// The parameters' average over all devices: over rings through all, or inside rooms, across and back, which
// is shorter where rooms are far from each other.
double average_seconds(const Cluster& cluster, double bytes, Library library) {
  const Network network(cluster);
  const auto members = [](int count, int stride) {
    std::vector<int> list(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) list[static_cast<std::size_t>(i)] = i * stride;
    return list;
  };
  const int all = cluster.devices();
  const double flat_s = all_reduce_s(library, bytes, group_shape(network, members(all, 1)), cluster, {});
  const int room = devices_of_room(cluster);
  if (library != Library::own || room >= all || room < 2 || all % room != 0) return flat_s;
  const GroupShape inside = group_shape(network, members(room, 1));
  GroupShape across = group_shape(network, members(all / room, room));
  across.inter_bandwidth_bytes_per_s =
      std::min(across.inter_bandwidth_bytes_per_s, cluster.fabric.global_bandwidth_bytes_per_s / room);
  double grouped_s =
      plan_collective(CollectiveKind::all_reduce, bytes / room, across, cluster).seconds(bytes / room);
  for (const CollectiveKind kind : {CollectiveKind::reduce_scatter, CollectiveKind::all_gather})
    grouped_s += plan_collective(kind, bytes, inside, cluster).seconds(bytes);
  return std::min(flat_s, grouped_s);
}

// Of the closed form: computation is what one device alone does, the rest is communication.
void estimate_ranks(Way* way) {
  for (const double own : way->compute_s) {
    const double compute_s = std::min(way->step_s, own);
    way->ranks.push_back({compute_s, way->step_s - compute_s, 0, 0});
  }
  way->wire_bytes = 2 * gradient_bytes(*way->plan) * (way->devices - 1) / way->devices;
}

// Workers that step alone: one device's step, at each one's speed, and the average's share of it.
void compose_local(const Strategy& strategy, const Job& job, const sim::Simulation& alone, Way* way) {
  const double compute_s = alone.step_time_s;
  double slowest = 0;
  for (int device = 0; device < way->devices; ++device) {
    way->compute_s.push_back(compute_s / job.cluster.device_speed(device));
    slowest = std::max(slowest, way->compute_s.back());
  }
  const int every = strategy.mechanics.local_steps;
  const double bytes = static_cast<double>(job.workload.parameters()) * bytes_of(DType::fp32);
  if (way->devices > 1) way->average_s = average_seconds(job.cluster, bytes, strategy.mechanics.library);
  way->step_s = slowest + way->average_s / every;
  way->wire_bytes = sent_bytes(CollectiveKind::all_reduce, bytes, way->devices) / every;
  for (const double own : way->compute_s)
    way->ranks.push_back({own, way->average_s / every, slowest - own, 0});
  const double outer = strategy.mechanics.outer_bytes * static_cast<double>(job.workload.parameters());
  way->memory.optimizer += outer;
  way->memory.total += outer;
  way->memory.needed += outer;
}

}  // namespace

std::string_view name_of(FoundBy found) {
  return name_in(kFoundBy, found);
}

double sent_bytes(CollectiveKind kind, double bytes, int members) {
  if (members < 2) return 0;
  const double n = members;
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (n - 1) / n * bytes;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_gather:
    case CollectiveKind::all_to_all:
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
      return (n - 1) / n * bytes;
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
      return (n - 1) / n * bytes / n;
  }
  return 0;
}

double joined_bytes(double gradient_bytes, double backward_s, double cycle_s, double threshold_bytes) {
  const double ready = backward_s > 0 ? gradient_bytes * std::min(1.0, cycle_s / backward_s) : gradient_bytes;
  const double least = 1;  // every tensor by itself
  return std::max(least, threshold_bytes > 0 ? std::min(ready, threshold_bytes) : least);
}

double handed_step_s(Rendezvous rendezvous, double step_s, int workers, double dispatch_s) {
  if (dispatch_s <= 0 || workers < 2) return step_s;
  if (rendezvous == Rendezvous::all || rendezvous == Rendezvous::first) return step_s + workers * dispatch_s;
  return std::max(step_s + dispatch_s, workers * dispatch_s);
}

double Way::exchange_s() const {
  const double slowest = compute_s.empty() ? 0 : *std::max_element(compute_s.begin(), compute_s.end());
  return std::max(0.0, step_s - slowest);
}

double Way::mean_of(double RankTimes::*part) const {
  double sum = 0;
  for (const RankTimes& rank : ranks) sum += rank.*part;
  return ranks.empty() ? 0 : sum / static_cast<double>(ranks.size());
}

int Way::worst_rank() const {
  const auto worst = std::max_element(ranks.begin(), ranks.end(), [](const RankTimes& a, const RankTimes& b) {
    return a.waiting_s < b.waiting_s;
  });
  return static_cast<int>(worst - ranks.begin());
}

std::vector<Way> ways_of(const Base& base, const std::vector<Asked>& asked) {
  std::vector<Way> ways(asked.size());
  // One device alone, by what it computes: for the speed of a backward pass, and for workers that step alone.
  PlanMaker maker(base);
  std::vector<Plan> plans;
  std::vector<std::size_t> of_way;
  std::vector<bool> local;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    Way& way = ways[i];
    way.devices = asked[i].job->cluster.devices();
    try {
      way.plan = maker.plan_of(*asked[i].strategy, asked[i].job, &way.tuning);
    } catch (const UserError& error) {
      way.refusal = error.what();
      continue;
    }
    way.memory = planner::predict_memory(*way.plan);
    const bool alone = asked[i].strategy->rendezvous == Rendezvous::periodic;
    if (!alone && !is_simulated(*way.plan)) {
      way.found_by = FoundBy::closed_form;
      way.step_s = planner::estimate_step_seconds(*way.plan);
      continue;
    }
    if (alone) continue;
    plans.push_back(*way.plan);
    of_way.push_back(i);
  }
  sim::SimulationOptions options;
  options.links = 0;
  const int jobs = base.jobs > 0 ? base.jobs : processors();
  const std::vector<sim::Simulation> simulations = sim::simulate_all(plans, options, jobs);
  for (std::size_t s = 0; s < simulations.size(); ++s) {
    Way& way = ways[of_way[s]];
    const Strategy& strategy = *asked[of_way[s]].strategy;
    read_simulation(simulations[s], &way);
    const double later_s = later_end_s(simulations[s], forced_excess(strategy, way));
    way.step_s += later_s;
    for (RankTimes& rank : way.ranks) rank.exposed_s += later_s;
  }
  for (std::size_t i = 0; i < asked.size(); ++i) {
    Way& way = ways[i];
    if (!way.possible()) continue;
    const Strategy& strategy = *asked[i].strategy;
    if (strategy.rendezvous == Rendezvous::periodic) {
      compose_local(strategy, *asked[i].job, maker.alone(), &way);
    } else {
      // A worker's own step computes what one device alone does, at its own speed.
      const sim::Simulation& alone = maker.alone();
      const double busy = times_of(alone.breakdown).compute_s;
      for (int device = 0; device < way.devices; ++device)
        way.compute_s.push_back(busy / asked[i].job->cluster.device_speed(device));
    }
    if (way.found_by == FoundBy::closed_form) estimate_ranks(&way);
    finish(strategy, *asked[i].job, &way);
    way.efficiency =
        maker.samples_per_s_alone() > 0 ? way.samples_per_s / (maker.samples_per_s_alone() * way.devices) : 0;
  }
  return ways;
}

}  // namespace orrery::comparison
