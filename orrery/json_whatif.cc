// A what-if as JSON.
#include <map>

#include "base/units.h"
#include "orrery/records.h"

namespace orrery {
using namespace planner::whatif;
namespace {

// A number where it is written as JSON writes one.
Json value_json(const std::string& text) {
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_number() ? parsed : Json(text);
}

Json value_shape() {
  return {{"type", {"number", "string"}}};
}

// What a total takes; of a goal that was asked, or of a billion.
Record<Total> total_record(bool asked) {
  const auto high = [](double unit, auto of) {
    return [unit, of](const Total& t) {
      const std::optional<double> value = of(t);
      return value ? std::optional(*value / unit * t.of_total.high) : std::nullopt;
    };
  };
  const auto low = [](double unit, auto of) {
    return [unit, of](const Total& t) {
      const std::optional<double> value = of(t);
      return value ? std::optional(*value / unit * t.of_total.low) : std::nullopt;
    };
  };
  const auto cost = [](const Total& t) { return t.cost_usd; };
  const auto energy = [](const Total& t) { return t.energy_j; };
  Record<Total> r(asked ? "" : "total");
  r.value(asked ? "time_to_train_s" : "time_s", "without failures and checkpoints",
          [](const Total& t) { return t.time_s; });
  if (asked) r.value("steps", "to train", [](const Total& t) { return static_cast<std::int64_t>(t.steps); });
  r.value("device_hours", "of all devices", [](const Total& t) { return t.device_hours; })
      .value("cost_usd", "by the device hours' price, where one is stated", cost)
      .value("energy_j", "where the devices' power is stated", energy)
      .value("days_low", "90% of such trainings take at least",
             [](const Total& t) { return t.time_s / kSecondsPerDay * t.of_total.low; })
      .value("days_high", "and at most",
             [](const Total& t) { return t.time_s / kSecondsPerDay * t.of_total.high; })
      .value("usd_low", "90% of such trainings cost at least", low(1, cost))
      .value("usd_high", "and at most", high(1, cost))
      .value("mwh_low", "90% of such trainings take at least", low(kJoulesPerMegawattHour, energy))
      .value("mwh_high", "and at most", high(kJoulesPerMegawattHour, energy));
  return r;
}

const Record<Total>& asked_record() {
  static const auto record = total_record(true);
  return record;
}

const Record<Total>& per_goal_record() {
  static const auto record = total_record(false);
  return record;
}

const Record<Total>& per_step_record() {
  static const auto record =
      Record<Total>()
          .value(
              "cost_usd", "of a step",
              [](const Total& t) { return t.cost_usd ? std::optional(*t.cost_usd / t.steps) : std::nullopt; })
          .value("energy_j", "of a step", [](const Total& t) {
            return t.energy_j ? std::optional(*t.energy_j / t.steps) : std::nullopt;
          });
  return record;
}

struct At {
  const Result& result;
  std::size_t i;
  const std::optional<Planned>& best() const { return result.answers[i].best; }
  const Total* total(bool asked, const char* unit = nullptr) const {
    const bool wanted = result.goal.asked == asked && (unit == nullptr || result.goal.unit() == unit);
    return best() && wanted ? &*result.totals[i] : nullptr;
  }
};

const Record<At>& point_record() {
  static const auto of_best = [](auto of) {
    return [of](const At& at) { return at.best() ? std::optional(of(*at.best())) : std::nullopt; };
  };
  static const auto record =
      Record<At>()
          .given("vary", "what is varied here, by key", shape_of_map(value_shape()),
                 [](const At& at) {
                   Json vary = Json::object();
                   for (const auto& [key, value] : at.result.points[at.i].vary) vary[key] = value_json(value);
                   return vary;
                 })
          .with(
              job_record(), [](const At& at) -> const auto& { return *at.result.points[at.i].job; })
          .value("candidates", "plans with distinct Programs",
                 of_best([](const Planned& p) { return p.candidates; }))
          .value("proven", "best under this model", of_best([](const Planned& p) { return p.proven; }))
          .value("gap", "to the least bound of the rest, as a fraction of the step",
                 of_best([](const Planned& p) { return p.gap; }))
          .value("nominal_step_time_s", "of the plan that is faster as predicted, where that is another",
                 of_best([](const Planned& p) { return p.nominal_step_s; }))
          .value("plan", "the best, in words", of_best([](const Planned& p) { return p.words(); }))
          .value("warnings", "of that plan",
                 of_best([](const Planned& p) { return planner::warnings_about(p.evaluation.plan); }))
          .with(evaluation_record(),
                [](const At& at) { return at.best() ? &at.best()->evaluation : nullptr; })
          .with(asked_record(), [](const At& at) { return at.total(true); })
          .object("per_1e9_tokens", "where nothing says how much is trained", per_goal_record(),
                  [](const At& at) { return at.total(false, "tokens"); })
          .object("per_1e9_samples", "where nothing says how much is trained", per_goal_record(),
                  [](const At& at) { return at.total(false, "samples"); })
          .object("per_step", "cost and energy", per_step_record(),
                  [](const At& at) { return at.best() ? &*at.result.totals[at.i] : nullptr; })
          .value(
              "scaling_efficiency", "tokens (samples) a second and device beside the first planned point's",
              [](const At& at) {
                return at.best() && !at.result.efficiency.empty() ? at.result.efficiency[at.i] : std::nullopt;
              })
          .value("refusal", "why there is no plan",
                 [](const At& at) { return at.best() ? nullptr : &at.result.answers[at.i].refusal; })
          .value("meets", "deadline and budget", [](const At& at) {
            return at.result.totals[at.i] &&
                   planner::whatif::meets(*at.result.totals[at.i], at.result.limits);
          });
  return record;
}

// What all points have in common.
template <typename Of>
auto shared(Of of) {
  return [of](const Result& result) {
    using V = std::decay_t<decltype(of(*result.points.front().job))>;
    std::optional<V> common;
    for (const Point& point : result.points) {
      const V value = of(*point.job);
      if (common && *common != value) return std::optional<V>();
      common = value;
    }
    return common;
  };
}

}  // namespace

const Record<Result>& whatif_record() {
  using R = Result;
  static const auto record =
      Record<R>()
          .value("workload", "what is trained, where that is not varied",
                 shared([](const Job& job) { return job.workload.name; }))
          .value("cluster", "what it is trained on, where that is not varied",
                 shared([](const Job& job) { return job.cluster.name; }))
          .value("devices", "of the cluster, where all points have as many",
                 shared([](const Job& job) { return job.cluster.devices(); }))
          .value("nodes", "of the cluster, where all points have as many",
                 shared([](const Job& job) { return job.cluster.nodes(); }))
          .value("runtime", "whose kernels are modelled, where that is not varied",
                 shared([](const Job& job) { return job.runtime.name; }))
          .given("varied", "the keys, each with its values",
                 shape_of_map({{"type", "array"}, {"items", value_shape()}}),
                 [](const R& r) {
                   Json varied = Json::object();
                   for (const Varied& key : r.varied) {
                     varied[key.key] = Json::array();
                     for (const std::string& value : key.values) varied[key.key].push_back(value_json(value));
                   }
                   return varied;
                 })
          .value("tokens", "to train on",
                 [](const R& r) { return r.goal.asked && r.goal.in_tokens ? &r.goal.amount : nullptr; })
          .value("samples", "to train on",
                 [](const R& r) { return r.goal.asked && !r.goal.in_tokens ? &r.goal.amount : nullptr; })
          .value("deadline_days", "that the training may take",
                 [](const R& r) {
                   return r.limits.deadline_s ? std::optional(*r.limits.deadline_s / kSecondsPerDay)
                                              : std::nullopt;
                 })
          .value("budget_usd", "that the training may cost", [](const R& r) { return r.limits.budget_usd; })
          .value("search_s", "that planning took, by the clock", [](const R& r) { return r.search_s; })
          .nullable("cheapest", "index of the point that meets all limits and costs least",
                    [](const R& r) { return r.selection.cheapest; })
          .nullable("fastest", "index of the point that meets all limits and takes least time",
                    [](const R& r) { return r.selection.fastest; })
          .value("front", "indices of the points of the front of time and cost",
                 [](const R& r) { return r.selection.front; })
          .list("points", "a planned point for each combination", point_record(), [](const R& r) {
            std::vector<At> points;
            for (std::size_t i = 0; i < r.points.size(); ++i) points.push_back({r, i});
            return points;
          });
  return record;
}

Json to_json(const Result& result) {
  return whatif_record().json(result);
}

}  // namespace orrery
