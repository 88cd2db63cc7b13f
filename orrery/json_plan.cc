// A plan, what is trained by it, and the search that found it, as JSON.
#include <algorithm>
#include <cmath>

#include "orrery/records.h"
#include "planner/closed_form/graph_cuts.h"
#include "planner/search/pareto.h"
#include "planner/search/why.h"
#include "planner/space/offload.h"
#include "planner/space/pin_options.h"
#include "program/measured/plans_alike.h"
#include "workloads/graph_split.h"

namespace orrery {
using namespace planner;
namespace {

Json shape_of(const FieldValue& value) {
  return std::visit([](const auto& one) { return record_detail::shape<decltype(one)>(); }, value);
}

// What was chosen, key by key.
const Record<Plan>& dimensions_record() {
  static const auto record = [] {
    // Of no job: what kind of value a key has is the same of all plans.
    Plan any;
    any.job = std::make_shared<Job>();
    Record<Plan> r;
    for (const PinOption& pin : pin_options())
      for (const PlanField& field : pin.fields)
        r.given(field.key, field.what.empty() ? pin.option.help : field.what, shape_of(field.value(any)),
                [value = field.value](const Plan& plan) {
                  return std::visit([](const auto& one) { return Json(one); }, value(plan));
                });
    r.value("degrees", "degrees of further forms of parallelism, by name", [](const Plan& plan) {
      const auto& degrees = plan.choices.degrees;
      return degrees.empty() ? nullptr : &degrees;
    });
    return r;
  }();
  return record;
}

struct LengthsAnswer {
  const SequenceLengths& lengths;
  int seq_len;
};

const Record<LengthsAnswer>& lengths_record() {
  static const auto record =
      Record<LengthsAnswer>()
          .value("least_tokens", "of the shortest sequence",
                 [](const auto& l) { return l.lengths.tokens.front(); })
          .value("mean_tokens", "of a sequence, in the mean",
                 [](const auto& l) { return content({l.lengths.tokens}, l.seq_len).tokens; })
          .value("most_tokens", "of the longest sequence",
                 [](const auto& l) { return l.lengths.tokens.back(); })
          .value("packed", "several sequences share a row", [](const auto& l) { return l.lengths.packed; })
          .value("balanced", "ranks get rows of like work", [](const auto& l) { return l.lengths.balanced; });
  return record;
}

const Record<Job>& training_record() {
  static const auto record =
      Record<Job>("training")
          .value("global_batch", "samples (sequences) of a step",
                 [](const Job& job) { return job.training.global_batch; })
          .value("seq_len", "tokens of a sequence; 0: a model without sequences",
                 [](const Job& job) { return job.training.seq_len; })
          .value("precision", "in which products are computed",
                 [](const Job& job) { return name_of(job.training.precision); })
          .value("optimizer", "what updates the weights",
                 [](const Job& job) { return name_of(job.training.optimizer); })
          .value("attention", "fused or unfused",
                 [](const Job& job) { return job.training.fused_attention ? "fused" : "unfused"; })
          .value("offload", "what the host keeps: none, optimizer or all",
                 [](const Job& job) { return planner::name_of(planner::offload_of(job.runtime)); })
          .value("sample_bytes", "of a sample as it is read",
                 [](const Job& job) { return job.training.sample_bytes; })
          .object(
              "lengths", "sequences of unequal length, where they are", lengths_record(), [](const Job& job) {
                const Training& t = job.training;
                return t.lengths.any() ? std::optional(LengthsAnswer{t.lengths, t.seq_len}) : std::nullopt;
              });
  return record;
}

struct Compared {
  const Evaluation& best;
  const Evaluation& other;
  StepSlowdown slowdown = slowdown_against(best, other);
};

// What a simulated plan takes more than the answer, and the part of the step that grew most.
const Record<Compared>& loses_record() {
  static const auto record =
      Record<Compared>("loses", "s")
          .value("seconds", "that a step takes more than the best plan's",
                 [](const Compared& l) { return l.slowdown.seconds; })
          .value("share", "the same as a fraction of the best plan's step",
                 [](const Compared& l) { return l.slowdown.seconds / l.best.step_time_s(); })
          .value("part", "the part of the step that grew most",
                 [](const Compared& l) { return l.slowdown.part; })
          .value("part_s", "by how much that part grew", [](const Compared& l) { return l.slowdown.part_s; });
  return record;
}

const Record<Subset>& subset_record() {
  static const auto record =
      Record<Subset>()
          .value("cluster", "the part's name", [](const Subset& s) { return s.cluster.name; })
          .value("nodes", "that it has", [](const Subset& s) { return s.cluster.nodes(); })
          .value("devices", "that it has", [](const Subset& s) { return s.cluster.devices(); })
          .value("step_time_s", "of the best plan on it",
                 [](const Subset& s) { return s.best ? std::optional(s.best->step_time_s()) : std::nullopt; })
          .value(
              "plan", "that plan, in words",
              [](const Subset& s) { return s.best ? std::optional(describe(s.best->plan)) : std::nullopt; })
          .value("refusal", "why there is none",
                 [](const Subset& s) { return s.best ? nullptr : &s.refusal; });
  return record;
}

const Record<Sensitivity>& sensitivity_record() {
  static const auto record =
      Record<Sensitivity>()
          .value("change", "of the hardware", [](const Sensitivity& s) { return s.key; })
          .value("saves", "of the best plan's step, as a fraction",
                 [](const Sensitivity& s) { return std::max(0.0, s.saves); });
  return record;
}

const Record<SearchResult>& pareto_covers_record() {
  const auto looked = [](auto of) {
    return [of](const SearchResult& r) {
      return r.pareto_looked_into == 0 ? std::nullopt : std::optional(of(r));
    };
  };
  static const auto record = Record<SearchResult>()
                                 .value("simulated", "plans of which the front is exact",
                                        [](const SearchResult& r) { return r.simulated; })
                                 .value("looked_into", "plans from which the closed form's front was chosen",
                                        [](const SearchResult& r) { return r.pareto_looked_into; })
                                 .value("front_of_closed_form", "plans on that front",
                                        looked([](const SearchResult& r) { return r.pareto_front; }))
                                 .value("of_it_simulated", "of those",
                                        looked([](const SearchResult& r) { return r.pareto_simulated; }))
                                 .value("beyond_s", "the least step of a layout that was not looked into",
                                        [](const SearchResult& r) {
                                          return r.pareto_looked_into > 0 && std::isfinite(r.pareto_beyond_s)
                                                     ? &r.pareto_beyond_s
                                                     : nullptr;
                                        });
  return record;
}

const Record<Evaluation>& front_record() {
  static const auto record =
      Record<Evaluation>()
          .with(
              evaluation_record(), [](const Evaluation& e) -> const auto& { return e; })
          .value("cost_usd", "of a step; 0: no price is stated",
                 [](const Evaluation& e) { return figures_of(e).cost_usd; })
          .value("energy_j", "of a step; 0: no power is stated",
                 [](const Evaluation& e) { return figures_of(e).energy_j; })
          .value("headroom_bytes", "that the fullest device has left",
                 [](const Evaluation& e) { return e.memory.capacity - e.memory.total; });
  return record;
}

// A plan of a list, beside the first.
struct Ranked {
  const Evaluation& plan;
  const Evaluation* best;  // null: it is the first
};

const Record<Ranked>& ranked_record() {
  static const auto record =
      Record<Ranked>()
          .with(
              evaluation_record(), [](const Ranked& r) -> const auto& { return r.plan; })
          .object("loses", "to the first plan", loses_record(), [](const Ranked& r) {
            return r.best ? std::optional<Compared>(Compared{*r.best, r.plan}) : std::nullopt;
          });
  return record;
}

struct Known {
  const KnownRecipe& recipe;
  const Evaluation& best;
};

const Record<Known>& known_record() {
  static const auto record =
      Record<Known>()
          .with(
              evaluation_record(), [](const Known& k) -> const auto& { return k.recipe.evaluation; })
          .value("name", "of the recipe", [](const Known& k) { return k.recipe.name; })
          .value("source", "who runs it", [](const Known& k) { return k.recipe.source; })
          .value("fits", "in memory", [](const Known& k) { return k.recipe.evaluation.memory.fits(); })
          .object("loses", "to the first plan", loses_record(),
                  [](const Known& k) {
                    return Compared{k.best, k.recipe.evaluation};
                  })
          .value("why", "it is slower or quicker", [](const Known& k) { return k.recipe.why; });
  return record;
}

struct Beside {
  const System& system;
  const Evaluation& best;
};

const Record<Beside>& system_record() {
  static const auto record =
      Record<Beside>()
          .value("kind", "of system", [](const Beside& b) { return name_of(b.system.kind); })
          .value("suits", "it is the best plan's",
                 [](const Beside& b) { return b.system.kind == system_kind_of(b.best.plan.choices); })
          .value("step_time_s", "of its best plan, simulated",
                 [](const Beside& b) { return b.system.step_time_s; })
          .value("bound_s", "that a step takes at least, in closed form",
                 [](const Beside& b) { return b.system.bound_s > 0 ? &b.system.bound_s : nullptr; })
          .value("bound_by", "computation or traffic",
                 [](const Beside& b) { return b.system.bound_s > 0 ? &b.system.bound_by : nullptr; })
          .value("plan", "that plan, in words",
                 [](const Beside& b) {
                   const System& s = b.system;
                   return s.choices && (s.step_time_s || s.bound_s > 0)
                              ? std::optional(describe(Plan{b.best.plan.job, *s.choices}))
                              : std::nullopt;
                 })
          .value("short_bytes", "that its smallest plan lacks on a device",
                 [](const Beside& b) { return b.system.short_bytes > 0 ? &b.system.short_bytes : nullptr; })
          .value("refusal", "why there is none", [](const Beside& b) {
            const System& s = b.system;
            if (s.step_time_s || s.bound_s > 0) return std::optional<std::string>();
            return std::optional<std::string>(s.short_bytes > 0 ? "does not fit in memory" : s.refusal);
          });
  return record;
}

std::vector<Beside> beside(const std::vector<System>& systems, const Evaluation& best) {
  std::vector<Beside> all;
  for (const System& system : systems) all.push_back({system, best});
  return all;
}

const Record<Memory>& memory_record() {
  static const auto record =
      Record<Memory>("memory", "bytes")
          .value("total", "peak reserved, and the context", [](const Memory& m) { return m.total; })
          .value("weights", "of it", [](const Memory& m) { return m.weights; })
          .value("gradients", "of it", [](const Memory& m) { return m.gradients; })
          .value("optimizer", "of it: the optimizer's states", [](const Memory& m) { return m.optimizer; })
          .value("activations", "of it, kept for the backward pass",
                 [](const Memory& m) { return m.activations; })
          .value("buffers", "of it: what communication and kernels need",
                 [](const Memory& m) { return m.buffers; })
          .value("capacity", "of the device", [](const Memory& m) { return m.capacity; })
          .given("stage", "of the pipeline whose device is fullest", {{"type", "integer"}, {"x-unit", ""}},
                 [](const Memory& m) { return Json(m.stage); });
  return record;
}

const Record<StageLoad>& stage_record() {
  static const auto record =
      Record<StageLoad>()
          .value("stage", "of the pipeline, from 0", [](const StageLoad& s) { return s.stage; })
          .value("layers", "of all its chunks", [](const StageLoad& s) { return s.layers; })
          .value("compute_s", "that a device computes in a step, mean",
                 [](const StageLoad& s) { return s.compute_s; })
          .value("memory_bytes", "of its fullest device", [](const StageLoad& s) { return s.memory_bytes; })
          .value("capacity_bytes", "of that device", [](const StageLoad& s) { return s.capacity_bytes; });
  return record;
}

const Record<ReplicaLoad>& replica_record() {
  static const auto record =
      Record<ReplicaLoad>()
          .value("first", "of the replicas that do the same", [](const ReplicaLoad& r) { return r.first; })
          .value("count", "of them", [](const ReplicaLoad& r) { return r.count; })
          .value("samples", "of a step, each", [](const ReplicaLoad& r) { return r.samples; })
          .value("compute_s", "that a device computes in a step, mean",
                 [](const ReplicaLoad& r) { return r.compute_s; });
  return record;
}

const Record<Load>& load_record() {
  static const auto record =
      Record<Load>("load")
          .list(
              "stages", "of the pipeline", stage_record(),
              [](const Load& l) -> const auto& { return l.stages; })
          .list(
              "replicas", "of the data, neighbours that do the same together", replica_record(),
              [](const Load& l) -> const auto& { return l.replicas; })
          .value("stage_compute_std_s", "standard deviation over the stages",
                 [](const Load& l) { return l.stage_compute_std_s; })
          .value("stage_memory_std_bytes", "standard deviation over the stages",
                 [](const Load& l) { return l.stage_memory_std_bytes; })
          .value("replica_compute_std_s", "standard deviation over the replicas",
                 [](const Load& l) { return l.replica_compute_std_s; });
  return record;
}

struct SplitOperator {
  const Operator& op;
};

const Record<SplitOperator>& split_record() {
  static const auto record =
      Record<SplitOperator>()
          .value("operator", "its name", [](const SplitOperator& s) { return s.op.name; })
          .value("split", "by column, row or table", [](const SplitOperator& s) {
            return s.op.split == TensorSplit::row     ? "row"
                   : s.op.split == TensorSplit::table ? "table"
                                                      : "column";
          });
  return record;
}

bool is_graph(const Evaluation& e) {
  return !e.plan.job->workload.transformer;
}

std::optional<std::vector<SplitOperator>> tensor_split(const Evaluation& e) {
  if (!is_graph(e)) return std::nullopt;
  const Workload& workload = e.plan.job->workload;
  std::vector<SplitOperator> all;
  if (e.plan.choices.tp > 1)
    for (const int index : split_operators(workload))
      all.push_back({workload.operators[static_cast<std::size_t>(index)]});
  return all;
}

std::vector<std::string> names_of_parts() {
  std::vector<std::string> names;
  for (const auto& [name, seconds] : parts_of(Breakdown{})) names.push_back(name);
  return names;
}

// All of them where the plan was simulated, else none.
Json parts_shape() {
  Json shape = shape_of_map({{"type", "number"}, {"x-unit", "s"}}, names_of_parts());
  shape.erase("required");
  return shape;
}

const Record<Throughput>& throughput_record() {
  static const auto record =
      Record<Throughput>()
          .value("samples_per_s", "samples trained a second",
                 [](const Throughput& t) { return t.samples_per_s; })
          .value("tokens_per_s", "tokens trained a second; 0: a model without sequences",
                 [](const Throughput& t) { return t.tokens_per_s; })
          .value("model_flops", "of the whole cluster in a step: causal attention once, no recomputation",
                 [](const Throughput& t) { return t.model_flops; })
          .value("model_tflops_per_gpu", "those, a second and device",
                 [](const Throughput& t) { return t.model_tflops_per_gpu; })
          .value("mfu", "those over the dense datasheet peak at the precision",
                 [](const Throughput& t) { return t.mfu; })
          .value("hfu", "the same with recomputation counted", [](const Throughput& t) { return t.hfu; });
  return record;
}

}  // namespace

std::string_view profile_of(const DeviceProfile& device) {
  return foundation_of(device) == Foundation::fitted ? "calibrated" : "datasheet";
}

std::string_view profile_of(const Cluster& cluster) {
  for (const NodeGroup& group : cluster.groups)
    if (const auto own = profile_of(cluster.profiles[group.node.profile]); own != "calibrated") return own;
  return "calibrated";
}

const Record<RestsOn>& rests_on_record() {
  static const auto record = Record<RestsOn>("rests_on")
                                 .value("runtime", "calibrated, fitted, datasheet or assumed",
                                        [](const RestsOn& r) { return name_of(r.runtime); })
                                 .value("device", "calibrated, fitted, datasheet or assumed",
                                        [](const RestsOn& r) { return name_of(r.device); })
                                 .value("network", "calibrated, fitted, datasheet or assumed",
                                        [](const RestsOn& r) { return name_of(r.network); });
  return record;
}

const Record<Range>& step_range_record() {
  static const auto record =
      Record<Range>()
          .value("step_time_low_s", "90% of such steps take at least", [](const Range& r) { return r.low; })
          .value("step_time_high_s", "and at most", [](const Range& r) { return r.high; });
  return record;
}

const Record<Interval>& interval_record() {
  static const auto record =
      Record<Interval>()
          .with(
              step_range_record(), [](const Interval& i) -> const auto& { return i.step_time_s; })
          .value("memory_low_bytes", "90% of such runs need at least, on the fullest device",
                 [](const Interval& i) { return i.memory_bytes.low; })
          .value("memory_high_bytes", "and at most", [](const Interval& i) { return i.memory_bytes.high; })
          .value("fit_probability", "that it fits in memory",
                 [](const Interval& i) { return i.fit_probability; })
          .object(
              "rests_on", "what the figures rest on", rests_on_record(),
              [](const Interval& i) -> const auto& { return i.rests_on; })
          .value("narrowed_by", "what would narrow the interval most",
                 [](const Interval& i) { return i.narrowed_by; });
  return record;
}

namespace {

// Of what measured steps of plans alike say; nothing where there are none.
template <typename Value>
std::optional<Value> measured_alike(const Plan& plan, Value CorrectedBy::*field) {
  const CorrectedBy corrected = corrected_by(plan);
  return corrected.steps > 0 ? std::optional(corrected.*field) : std::nullopt;
}

}  // namespace

const Record<Evaluation>& evaluation_record() {
  using E = Evaluation;
  static const auto record =
      Record<E>("plan")
          .with(
              dimensions_record(), [](const E& e) -> const auto& { return e.plan; })
          .value("step_time_s", "steady state: from the end of one step to the end of the next",
                 [](const E& e) { return e.step_time_s(); })
          .with(throughput_record(), [](const E& e) { return throughput(e); })
          .object(
              "memory_bytes", "of the fullest device", memory_record(),
              [](const E& e) -> const auto& { return e.memory; })
          .list("tensor_split", "of a model that is no stack of layers: the operators that tp divides",
                split_record(), [](const E& e) { return tensor_split(e); })
          .value("cut_excess", "of such a model: how much fuller the fullest stage is than the mean",
                 [](const E& e) { return is_graph(e) ? std::optional(cut_excess(e.plan)) : std::nullopt; })
          .given("breakdown_s",
                 "of the rank with most compute, each instant counted once: its parts add up to the step",
                 parts_shape(),
                 [](const E& e) {
                   Json parts = Json::object();
                   if (e.simulation)
                     for (const auto& [name, seconds] : parts_of(e.simulation->breakdown))
                       parts[name] = seconds;
                   return parts;
                 })
          .value("busy_s", "of that rank, by what it is busy with: what overlaps counts twice",
                 [](const E& e) {
                   std::map<std::string, double> busy;
                   if (e.simulation)
                     for (const auto& [name, seconds] : e.simulation->busy_s)
                       busy[std::string(name)] = seconds;
                   return busy;
                 })
          .value("host_s", "of that rank: seconds of a step that its host takes to launch kernels",
                 [](const E& e) { return e.simulation ? std::optional(e.simulation->host_s) : std::nullopt; })
          .value("padded_share", "of sequences of unequal length: the share of tokens that is padding",
                 [](const E& e) {
                   return e.plan.job->training.lengths.any() ? std::optional(e.plan.padded_share())
                                                             : std::nullopt;
                 })
          .value("wait_for_longest", "of such: the longest rank's work over the mean",
                 [](const E& e) {
                   return e.plan.job->training.lengths.any() ? std::optional(e.plan.wait_for_longest())
                                                             : std::nullopt;
                 })
          .with(
              interval_record(), [](const E& e) -> const auto& { return e.interval; })
          .value("corrected_times",
                 "by how much measured steps of plans alike lengthen the step: it is in it",
                 [](const E& e) { return measured_alike(e.plan, &CorrectedBy::times); })
          .value("corrected_by_steps", "so many were measured",
                 [](const E& e) { return measured_alike(e.plan, &CorrectedBy::steps); })
          .value("probability_fastest", "of the plans that were compared",
                 [](const E& e) { return e.odds ? &e.odds->probability_fastest : nullptr; })
          .value("regret_s", "expected: how much slower it is than the fastest",
                 [](const E& e) { return e.odds ? &e.odds->regret_s : nullptr; })
          .value("profile", kProfileMeaning, [](const E& e) { return profile_of(e.plan.job->cluster); })
          .value("estimate_s", "the closed form's step time", [](const E& e) { return e.estimate_s; })
          .object("load", "of stages and replicas, where it was simulated", load_record(),
                  [](const E& e) { return e.simulation ? std::optional(load_of(e)) : std::nullopt; });
  return record;
}

const Record<Job>& job_record() {
  static const auto record =
      Record<Job>()
          .value("workload", "what is trained", [](const Job& j) { return j.workload.name; })
          .value("parameters", "of it", [](const Job& j) { return j.workload.parameters(); })
          .value("cluster", "what it is trained on", [](const Job& j) { return j.cluster.name; })
          .value("devices", "of the cluster", [](const Job& j) { return j.cluster.devices(); })
          .value("nodes", "of the cluster", [](const Job& j) { return j.cluster.nodes(); })
          .value("runtime", "whose kernels, fusion and overlap are modelled",
                 [](const Job& j) { return j.runtime.name; })
          .object(
              "training", "how it is trained", training_record(),
              [](const Job& j) -> const auto& { return j; })
          .value("calibrated_by", "what calibrated the cluster", [](const Job& j) {
            return j.cluster.calibration ? &j.cluster.calibration->source : nullptr;
          });
  return record;
}

// A plan that is told beside the best, if there is one.
std::optional<Ranked> beside_best(const PlanAnswer& answer, const std::optional<Evaluation>& plan) {
  if (!plan) return std::nullopt;
  return Ranked{*plan, &answer.result.plans.front()};
}

const Record<PlanAnswer>& plan_record() {
  using A = PlanAnswer;
  static const auto record =
      Record<A>()
          .with(
              job_record(), [](const A& a) -> const auto& { return a.job; })
          .value("candidates", "plans with distinct Programs", [](const A& a) { return a.result.candidates; })
          .value("proven", "best under this model", [](const A& a) { return a.result.proven; })
          .value("gap", "to the least bound of the rest, as a fraction of the best step; 0: proven",
                 [](const A& a) { return a.result.gap; })
          .value("feasible", "plans checked that fit in memory", [](const A& a) { return a.result.feasible; })
          .value("simulated", "plans", [](const A& a) { return a.result.simulated; })
          .value("search_s", "that the search took, by the clock",
                 [](const A& a) { return a.result.search_s; })
          .value("why", "the best is best, and what bounds it", [](const A& a) { return a.result.why; })
          .list(
              "sensitivities", "what better hardware would save", sensitivity_record(),
              [](const A& a) -> const auto& { return a.result.sensitivities; })
          .list("systems", "the best plan of each kind of system", system_record(),
                [](const A& a) {
                  return a.result.systems.empty() ? std::vector<Beside>()
                                                  : beside(a.result.systems, a.result.plans.front());
                })
          .list(
              "subsets", "of different devices: what each alike part does alone", subset_record(),
              [](const A& a) -> const auto& { return a.result.subsets; })
          .object(
              "fewer_devices", "a part of the devices on which a step takes no longer", subset_record(),
              [](const A& a) -> const auto& { return a.result.fewer; })
          .object("less_sure_to_fit", "a plan that is faster, and fits with less than the wanted probability",
                  ranked_record(), [](const A& a) { return beside_best(a, a.result.unsure); })
          .object("tensor_overlap",
                  "with the runtime's tensor overlap turned on, which is not searched: a plan that is faster",
                  ranked_record(), [](const A& a) { return beside_best(a, a.result.tensor_overlap); })
          .list(
              "pareto", "the front of step time, cost, energy and memory of what was simulated",
              front_record(), [](const A& a) -> const auto& { return a.result.pareto; })
          .object(
              "pareto_covers", "what that front is of", pareto_covers_record(),
              [](const A& a) -> const auto& { return a.result; })
          .value("compared", "plans that probability_fastest is among",
                 [](const A& a) { return a.result.compared; })
          .value("warnings", "of the first plan", [](const A& a) { return a.result.warnings; })
          .list("plans", "best first, each simulated", ranked_record(),
                [](const A& a) {
                  std::vector<Ranked> all;
                  for (const Evaluation& one : a.result.plans)
                    all.push_back({one, all.empty() ? nullptr : &a.result.plans.front()});
                  return all;
                })
          .object("nominal", "the plan that is best as predicted, where that is not the first",
                  ranked_record(), [](const A& a) { return beside_best(a, a.result.nominal); })
          .object("fastest",
                  "with the memory objective: the fastest plan simulated, whatever its memory, where that is "
                  "not the first",
                  ranked_record(), [](const A& a) { return beside_best(a, a.result.fastest); })
          .object("known_recipe", "the nearest plan that people run", known_record(), [](const A& a) {
            return a.result.known_recipe
                       ? std::optional<Known>(Known{*a.result.known_recipe, a.result.plans.front()})
                       : std::nullopt;
          });
  return record;
}

Json to_json(const RestsOn& rests_on) {
  return rests_on_record().json(rests_on);
}
Json to_json(const Interval& interval) {
  return interval_record().json(interval);
}
Json to_json(const Load& load) {
  return load_record().json(load);
}
Json to_json(const Evaluation& evaluation) {
  return evaluation_record().json(evaluation);
}
Json to_json(const std::vector<System>& systems, const Evaluation& best) {
  Json list = Json::array();
  for (const Beside& one : beside(systems, best)) list.push_back(system_record().json(one));
  return list;
}
Json to_json(const Job& job) {
  return job_record().json(job);
}
Json to_json(const Job& job, const SearchResult& result) {
  return plan_record().json({job, result});
}

}  // namespace orrery
