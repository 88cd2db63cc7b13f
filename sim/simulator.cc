#include "sim/simulator.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "cost/compute_cost.h"
#include "program/lower/lowering.h"
#include "program/measured/plans_alike.h"
#include "program/placement.h"
#include "sim/bytes.h"
#include "sim/condensed.h"
#include "sim/interpreter.h"
#include "sim/link_rates.h"
#include "sim/plan_bytes.h"
#include "sim/processes/isolate.h"
#include "sim/scenario/counterparts.h"
#include "sim/scenario/folding.h"
#include "sim/scenario/scenario.h"
#include "topologies/power.h"

namespace orrery::sim {
namespace {

// Of the two simulations that stand for a longer one: what is busiest in that is among these.
constexpr int kLinksOfCondensed = 400;

// Messages are simulated for every rank.
Folding folding_of(const Plan& plan, const SimulationOptions& options) {
  return options.fold && options.detail == Detail::flows ? fold_ranks(plan) : no_folding(plan);
}

// A plan made ready to run: everything that is the same in parent and child.
class Prepared {
 public:
  Prepared(const Plan& plan, const SimulationOptions& options)
      : plan_(plan), cluster_(plan.job->cluster), network_(cluster_) {
    const bool messages = options.detail == Detail::messages;
    folding_ = folding_of(plan, options);
    for (const DeviceProfile& profile : cluster_.profiles) costs_.emplace_back(plan, profile);
    programs.reserve(folding_.classes.size());
    for (const RankClass& c : folding_.classes) programs.push_back(lower(plan, c.representative));

    ScenarioInput input;
    input.network = &network_;
    for (const Program& program : programs) input.programs.push_back(&program);
    input.class_of = folding_.class_of;
    input.device_of = [&](int rank) { return device_of(plan, rank); };
    input.work_s = [&](const Program& program, const Instruction& instruction) {
      return cost_of(program.rank).seconds(program, instruction);
    };
    input.beside_s = [&](const Program& program, const Instruction& instruction) {
      return cost_of(program.rank).beside_seconds(instruction);
    };
    input.host_s = [&](const Program& program, const Instruction& instruction) {
      return cost_of(program.rank).host_seconds(instruction);
    };
    input.host_waits = [&](const Program& program) { return cost_of(program.rank).host_waits(program); };
    input.assumed_busy = assumed_busy();
    const Counterparts counterparts(plan);
    input.group_of = [&](GroupKind kind, int rank) { return group_of(kind, plan, rank); };
    input.counterpart_of = [&](int rank, int peer, int other) {
      return counterparts.peer(rank, peer, other);
    };
    set_runtime(plan, &input);
    input.messages = messages;
    scenario = build_scenario(input);
    steps = steps_of(options);
  }

  Simulation finish(Trace trace, const SimulationOptions& options) {
    Simulation result;
    result.step_ends_s = trace.step_ends_s;
    const double end = trace.step_ends_s.back();
    result.step_time_s = steps == 1 ? end : (end - trace.step_ends_s.front()) / (steps - 1);
    if (scenario.asynchronous) result.step_time_s = pace(trace);
    result.ranks = plan_.choices.world();
    result.simulated_ranks = static_cast<int>(programs.size());
    result.events = trace.activities;
    result.links = busiest_links(trace, static_cast<std::size_t>(options.links));
    if (options.keep_timeline) result.link_rates = link_rates(scenario.flows, trace.moved);
    result.timeline.events = std::move(trace.events);
    describe_critical_rank(trace, result);
    result.energy_j = energy_j(result.step_time_s);
    describe_load(result);
    if (options.keep_timeline)
      result.programs = std::move(programs);
    else
      result.timeline.events.clear();
    return result;
  }

  std::vector<Program> programs;
  Scenario scenario;
  int steps = 1;

 private:
  const ComputeCost& cost_of(int rank) const {
    const DevicePlace place = cluster_.place(device_of(plan_, rank));
    return costs_[static_cast<std::size_t>(
        cluster_.groups[static_cast<std::size_t>(place.group)].node.profile)];
  }

  int steps_of(const SimulationOptions& options) const {
    // Asynchronous workers start together and fall out of step with time.
    constexpr int kAsynchronousSteps = 12;
    if (scenario.asynchronous) return std::max(2, options.steps > 0 ? options.steps : kAsynchronousSteps);
    if (options.steps > 0) return options.steps;
    return scenario.ends_in_global_synchronisation ? 1 : 2;
  }

  // Seconds in which asynchronous workers do as many of their steps as a global batch has; also how many of
  // them each does in that time.
  double pace(const Trace& trace) {
    double rate = 0;
    const std::size_t ranks = programs.size();
    for (std::size_t r = 0; r < ranks; ++r)
      if (trace.late_s[r] > 0) rate += trace.late_steps[r] / trace.late_s[r];
    const double seconds = static_cast<double>(ranks) / rate;
    steps_of_rank_.assign(ranks, 0);
    for (std::size_t r = 0; r < ranks; ++r)
      if (trace.late_s[r] > 0) steps_of_rank_[r] = trace.late_steps[r] / trace.late_s[r] * seconds;
    return seconds;
  }

  // As ComputeCost counts busy neighbours.
  int assumed_busy() const { return std::min(plan_.choices.world(), devices_beside(cluster_)); }

  // Seconds of one step that a rank's compute stream is at work, for itself and for whom it serves.
  double work_s(std::size_t index) const {
    const auto of_script = [](const RankScript& script) {
      double work = 0;
      for (const Task& task : script.tasks)
        if (task.works) work += task.work_s;
      return work;
    };
    if (!scenario.asynchronous) return of_script(scenario.ranks[index]);
    double work = 0;
    for (const RankScript& script : scenario.ranks)
      if (script.rank == scenario.ranks[index].rank)
        work += of_script(script) * steps_of_rank_[static_cast<std::size_t>(
                                        folding_.class_of[static_cast<std::size_t>(script.worker)])];
    return work;
  }

  // Of one step: devices idle or at work, and their nodes.
  double energy_j(double step_s) const {
    double energy = 0;
    for (std::size_t r = 0; r < programs.size(); ++r) {
      const RankScript& rank = scenario.ranks[r];
      const int device = device_of(plan_, rank.rank);
      const NodeType& node = cluster_.groups[static_cast<std::size_t>(cluster_.place(device).group)].node;
      energy += rank.ranks * device_energy_j(cluster_, node, step_s, work_s(r));
    }
    return energy;
  }

  std::vector<LinkLoad> busiest_links(const Trace& trace, std::size_t most) const {
    const FlowSystem& flows = scenario.flows;
    std::vector<double> pattern_bytes(flows.patterns().size(), 0);
    for (std::size_t f = 0; f < flows.flows().size(); ++f)
      pattern_bytes[static_cast<std::size_t>(flows.flows()[f].pattern)] += trace.flow_bytes[f];
    std::vector<double> bytes(flows.links(), 0);
    for (std::size_t p = 0; p < flows.patterns().size(); ++p)
      if (pattern_bytes[p] > 0)
        for (const LinkWeight& load : flows.patterns()[p].loads)
          bytes[static_cast<std::size_t>(load.link)] += load.bytes * pattern_bytes[p];
    const double duration = trace.end_s;
    struct Used {
      double utilization = 0;
      LinkId id = 0;
      double bytes = 0;
    };
    std::vector<Used> order;  // by falling utilization, then by link
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] <= 0) continue;
      const auto link = static_cast<int>(i);
      const double could = flows.capacity(link) * duration;
      order.push_back({could > 0 ? bytes[i] / could : 0, flows.id_of(link), bytes[i]});
    }
    const std::size_t reported = std::min(most, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(reported), order.end(),
                      [](const Used& a, const Used& b) {
                        return a.utilization != b.utilization ? a.utilization > b.utilization : a.id < b.id;
                      });
    std::vector<LinkLoad> result;
    for (std::size_t i = 0; i < reported; ++i)
      result.push_back({name_of_link(order[i].id), order[i].utilization, order[i].bytes});
    return result;
  }

  std::string name_of_link(LinkId link) const {
    if (link > kStorageReadLink) return network_.name_of(link);
    return "node" + std::to_string(kStorageReadLink - link) + ".storage.read";
  }

  void describe_critical_rank(const Trace& trace, Simulation& result) const {
    std::size_t critical = 0;
    double most = -1;
    for (std::size_t r = 0; r < programs.size(); ++r) {
      const double work = work_s(r);
      if (work > most * (1 + 1e-9)) {
        most = work;
        critical = r;
      }
    }
    result.critical_rank = scenario.ranks[critical].rank;
    const int last = steps - 1;
    const double end = steps == 1 ? trace.step_ends_s.back()
                                  : trace.rank_step_ends_s[static_cast<std::size_t>(last)][critical];
    if (end == 0) {  // of a worker that was not waited for
      result.breakdown.bubble = result.step_time_s;
      return;
    }
    double begin = end - result.step_time_s;
    if (scenario.asynchronous) begin = trace.rank_step_ends_s[static_cast<std::size_t>(last) - 1][critical];
    result.breakdown = breakdown(programs[critical], result.timeline, last, begin, end);
    result.busy_s = busy_seconds(programs[critical], result.timeline, last);
    for (const Instruction& instruction : programs[critical].instructions)
      result.host_s += cost_of(programs[critical].rank).host_seconds(instruction);
    if (!scenario.asynchronous) return;
    // Its own step may take longer or shorter than a global batch.
    result.breakdown.scale(result.step_time_s / result.breakdown.total());
    for (auto& [kind, seconds] : result.busy_s) seconds *= steps_of_rank_[critical];
    result.host_s *= steps_of_rank_[critical];
  }

  void describe_load(Simulation& result) const {
    const Choices& choices = plan_.choices;
    std::vector<double> of_class;
    for (std::size_t r = 0; r < programs.size(); ++r) of_class.push_back(work_s(r));
    result.stage_compute_s.assign(static_cast<std::size_t>(choices.pp), 0);
    result.replica_compute_s.assign(static_cast<std::size_t>(choices.dp), 0);
    for (int rank = 0; rank < choices.world(); ++rank) {
      const Coordinates at = coordinates_of(plan_, rank);
      const double work =
          of_class[static_cast<std::size_t>(folding_.class_of[static_cast<std::size_t>(rank)])];
      result.stage_compute_s[static_cast<std::size_t>(at.pp)] += work * choices.pp / choices.world();
      result.replica_compute_s[static_cast<std::size_t>(at.dp)] += work * choices.dp / choices.world();
    }
  }

  const Plan& plan_;
  const Cluster& cluster_;
  Network network_;
  Folding folding_;
  std::vector<ComputeCost> costs_;
  std::vector<double> steps_of_rank_;  // asynchronous: that a rank does in the time of a global batch
};

// Everything but the Programs: those are lowered again where they are wanted.
template <typename Bytes, typename T>
void move_simulation_fields(Bytes& bytes, T& simulation) {
  bytes(simulation.step_time_s);
  bytes(simulation.step_ends_s);
  bytes(simulation.timeline.events);
  bytes(simulation.ranks);
  bytes(simulation.simulated_ranks);
  bytes(simulation.events);
  bytes.each(simulation.links, [&](auto& link) {
    bytes(link.name);
    bytes(link.utilization);
    bytes(link.bytes);
  });
  bytes.each(simulation.link_rates.kinds, [&](auto& kind) { bytes(kind); });
  bytes.each(simulation.link_rates.samples, [&](auto& sample) {
    bytes(sample.at_s);
    bytes(sample.bytes_per_s);
  });
  bytes(simulation.critical_rank);
  bytes(simulation.host_s);
  bytes(simulation.energy_j);
  bytes(simulation.stage_compute_s);
  bytes(simulation.replica_compute_s);
  bytes(simulation.breakdown);
  bytes(simulation.busy_s);
}

std::string to_bytes(const Simulation& simulation) {
  ByteWriter out;
  move_simulation_fields(out, simulation);
  return out.take();
}

Simulation simulation_from_bytes(const std::string& bytes) {
  ByteReader in(bytes);
  Simulation simulation;
  move_simulation_fields(in, simulation);
  return simulation;
}

Trace trace_of(const Prepared& prepared, const SimulationOptions& options) {
  return interpret(prepared.scenario, prepared.steps, options.keep_timeline);
}

// In a process of its own, which ends with it: what was prepared is never taken apart.
std::string simulated_bytes(const Plan& plan, const SimulationOptions& options) {
  Prepared& prepared = *std::make_unique<Prepared>(plan, options).release();
  return to_bytes(prepared.finish(trace_of(prepared, options), options));
}

template <typename Bytes, typename Options>
void move_options(Bytes& bytes, Options& options) {
  bytes(options.fold);
  bytes(options.detail);
  bytes(options.steps);
  bytes(options.keep_timeline);
  bytes(options.links);
}

std::string request_of(const Plan& plan, const SimulationOptions& options) {
  ByteWriter out;
  move_options(out, options);
  write_plan(out, plan);
  return out.take();
}

// As if everything took so many times as long.
void stretch(double times, Simulation* simulation) {
  for (double* one : {&simulation->step_time_s, &simulation->host_s, &simulation->energy_j}) *one *= times;
  for (std::vector<double>* each :
       {&simulation->step_ends_s, &simulation->stage_compute_s, &simulation->replica_compute_s})
    for (double& one : *each) one *= times;
  for (auto& [kind, busy_s] : simulation->busy_s) busy_s *= times;
  for (TimelineEvent& event : simulation->timeline.events)
    for (double* one : {&event.start_s, &event.end_s, &event.met_s}) *one *= times;
  for (LinkRates::Sample& sample : simulation->link_rates.samples) {
    sample.at_s *= times;
    for (double& rate : sample.bytes_per_s) rate /= times;
  }
  simulation->breakdown.scale(times);
  for (LinkLoad& link : simulation->links) link.utilization /= times;
}

Simulation as_measured_plans_say(const Plan& plan, Simulation simulation) {
  if (const double times = corrected_by(plan).times; times != 1) stretch(times, &simulation);
  return simulation;
}

}  // namespace

Simulation simulate(const Plan& plan, const SimulationOptions& options) {
  if (server_started() || (options.condense && !options.keep_timeline))
    return simulate_all({plan}, options, 1).front();
  Prepared prepared(plan, options);
  if (!shares_links(prepared.scenario))
    return as_measured_plans_say(plan, prepared.finish(trace_of(prepared, options), options));
  return as_measured_plans_say(
      plan, prepared.finish(
                trace_from_bytes(run_isolated({[&](int) { return to_bytes(trace_of(prepared, options)); }})),
                options));
}

namespace {

class Whole {
 public:
  Whole(const std::vector<Plan>& plans, const SimulationOptions& options, int jobs,
        const std::function<void(int done, int count)>& progress)
      : plans_(plans), options_(options), jobs_(jobs), progress_(progress), results_(plans.size()) {
    for (std::size_t i = 0; i < plans.size(); ++i)
      (may_share_links(plans[i].choices) ? isolated_ : here_).push_back(i);
  }

  std::vector<Simulation> run() {
    simulate_here();
    simulate_isolated();
    return std::move(results_);
  }

 private:
  // In threads, which takes half the time of as many processes.
  void simulate_here() {
    sort_by_length(&here_);
    std::vector<char> shares(here_.size(), 0);
    for_each_in_parallel(
        static_cast<int>(here_.size()), jobs_,
        [&](int place) {
          const auto at = static_cast<std::size_t>(place);
          Prepared prepared(plans_[here_[at]], options_);
          shares[at] = shares_links(prepared.scenario) ? 1 : 0;
          if (shares[at] != 0) return;
          results_[here_[at]] = prepared.finish(trace_of(prepared, options_), options_);
          ++done_;
        },
        [&](int, int) { tell(done_); });
    for (std::size_t at = 0; at < here_.size(); ++at)
      if (shares[at] != 0) isolated_.push_back(here_[at]);
  }

  void simulate_isolated() {
    if (isolated_.empty()) return;
    sort_by_length(&isolated_);
    const auto plan_of = [&](int place) -> const Plan& {
      return plans_[isolated_[static_cast<std::size_t>(place)]];
    };
    Work work;
    work.body = [&](int place) { return simulated_bytes(plan_of(place), options_); };
    work.request = [&](int place) { return request_of(plan_of(place), options_); };
    work.function = [](const std::string& request) {
      ByteReader in(request);
      SimulationOptions asked;
      move_options(in, asked);
      return simulated_bytes(read_plan(in), asked);
    };
    const std::vector<std::string> bytes = run_isolated_all(static_cast<int>(isolated_.size()), jobs_, work,
                                                            [&](int done, int) { tell(done_ + done); });
    for (std::size_t place = 0; place < bytes.size(); ++place) {
      Simulation& result = results_[isolated_[place]];
      result = simulation_from_bytes(bytes[place]);
      // Programs do not travel.
      if (!options_.keep_timeline) continue;
      const Plan& plan = plan_of(static_cast<int>(place));
      for (const RankClass& c : folding_of(plan, options_).classes)
        result.programs.push_back(lower(plan, c.representative));
    }
  }

  // The longest first: so nobody is left with a long one when the others are done.
  void sort_by_length(std::vector<std::size_t>* some) const {
    const auto key = [&](std::size_t i) {
      return std::pair(-passes_of(plans_[i], plans_[i].micro_batches()), i);
    };
    std::sort(some->begin(), some->end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  }

  void tell(int done) const {
    if (progress_) progress_(done, static_cast<int>(plans_.size()));
  }

  const std::vector<Plan>& plans_;
  const SimulationOptions& options_;
  int jobs_;
  const std::function<void(int done, int count)>& progress_;
  std::vector<Simulation> results_;
  std::vector<std::size_t> here_, isolated_;  // indices of plans
  std::atomic<int> done_{0};
};

std::vector<Simulation> simulate_whole(const std::vector<Plan>& plans, const SimulationOptions& options,
                                       int jobs, const std::function<void(int done, int count)>& progress) {
  return Whole(plans, options, jobs, progress).run();
}

}  // namespace

bool may_share_links(const Choices& c) {
  int dimensions = 0;
  for (const int size : {c.tp, c.cp, c.ep, c.dp, c.pp}) dimensions += size > 1 ? 1 : 0;
  return dimensions > 1;
}

double expected_passes(const Plan& plan) {
  const std::optional<Fewer> fewer = fewer_micro_batches(plan);
  return passes_of(plan, fewer ? fewer->shorter + fewer->longer : plan.micro_batches());
}

double expected_activities(const Plan& plan) {
  // Of a pass through a layer, there and back, counted in Programs of Llama 2 7B and Mixtral: computation;
  // what tensor ranks gather and reduce, and computation between; keys and values that go round; tokens that
  // go to their experts and come back.
  constexpr double kComputes = 5, kTensor = 35, kOfRing = 12, kExperts = 13;
  const Choices& c = plan.choices;
  const double of_pass =
      kComputes + (c.tp > 1 ? kTensor : 0) + kOfRing * (c.cp - 1) + (c.ep > 1 ? kExperts : 0);
  const auto classes = static_cast<double>(fold_ranks(plan).classes.size());
  return expected_passes(plan) * of_pass * classes / c.pp;
}

std::vector<Simulation> simulate_all(const std::vector<Plan>& plans, const SimulationOptions& options,
                                     int jobs, const std::function<void(int done, int count)>& progress) {
  if (!options.condense || options.keep_timeline) {
    std::vector<Simulation> results = simulate_whole(plans, options, jobs, progress);
    for (std::size_t i = 0; i < plans.size(); ++i)
      results[i] = as_measured_plans_say(plans[i], std::move(results[i]));
    return results;
  }
  std::vector<std::optional<Condensed>> fewer;
  std::vector<Plan> simulated;
  for (const Plan& plan : plans) {
    if (fewer.emplace_back(condensed(plan)))
      simulated.insert(simulated.end(), {fewer.back()->shorter, fewer.back()->longer});
    else
      simulated.push_back(plan);
  }
  SimulationOptions each = options;
  each.links = std::max(options.links, kLinksOfCondensed);
  std::vector<Simulation> found = simulate_whole(simulated, each, jobs, progress), results;
  for (std::size_t at = 0; const std::optional<Condensed>& some : fewer) {
    results.push_back(some ? extended(*some, found[at], std::move(found[at + 1])) : std::move(found[at]));
    at += some ? 2 : 1;
    std::vector<LinkLoad>& links = results.back().links;
    links.resize(std::min(links.size(), static_cast<std::size_t>(options.links)));
    results.back() = as_measured_plans_say(plans[results.size() - 1], std::move(results.back()));
  }
  return results;
}

}  // namespace orrery::sim
