// Collectives, what-if questions, and whole runs on devices that fail.
#include <fmt/format.h>

#include <cmath>
#include <variant>

#include "base/error.h"
#include "base/units.h"
#include "python/bindings.h"

namespace orrery::python {
namespace {

std::string collective_of(const std::string& op, const std::string& cluster, const std::vector<double>& bytes,
                          const std::optional<std::string>& nodes, std::optional<int> gpus,
                          const std::string& algorithm, const std::string& detail) {
  return without_gil([&] {
    CollectiveRequest request;
    request.kind = collective_from_name(op);
    request.detail = detail_from_name(detail);
    if (algorithm != "auto") request.algorithm = algorithm_from_name(algorithm);
    request.bytes = bytes;
    std::optional<NodeCounts> counts;
    std::optional<int> devices;
    const std::vector<Setting> sizes = size_options(counts, devices);
    if (nodes) set(sizes.front(), *nodes);
    request.cluster = sized_cluster(cluster, counts, gpus);
    request.progress = progress_of({});
    return to_json(request, collective(request)).dump();
  });
}

struct WhatifLimits {
  std::optional<double> tokens, samples, deadline_days, budget_usd;
};

// Values one by one, or as the command line's text.
using Values = std::variant<std::vector<std::string>, std::string>;
using Varied = std::vector<std::pair<std::string, Values>>;

// The JSON; why no point answers what was asked, empty where one does; the points as CSV.
py::tuple whatif_of(const std::string& workload, const std::string& cluster, const Texts& options,
                    const Varied& vary, const WhatifLimits& asked, int jobs,
                    const std::function<void(int, int)>& told) {
  std::string json, refusal, csv;
  without_gil([&] {
    if (!asked.tokens && !asked.samples && (asked.deadline_days || asked.budget_usd))
      throw UserError("`deadline_days` and `budget_usd` are of a whole training",
                      "expected `tokens` or `samples` beside them");
    std::vector<planner::whatif::Varied> varied;
    varied.reserve(vary.size());
    for (const auto& [key, values] : vary) {
      const auto* text = std::get_if<std::string>(&values);
      varied.push_back(text != nullptr ? parse_varied(key + "=" + *text)
                                       : planner::whatif::Varied{Option{.key = option_key(key)}.name(),
                                                                 std::get<std::vector<std::string>>(values)});
    }
    check_varied(varied);
    Points all = points_of(request_of(workload, cluster, options), varied);
    const planner::whatif::Goal goal = goal_of(asked.tokens, asked.samples, all.points);
    planner::whatif::Limits limits;
    if (asked.deadline_days) limits.deadline_s = *asked.deadline_days * kSecondsPerDay;
    limits.budget_usd = asked.budget_usd;
    const planner::whatif::Result result =
        whatif({std::move(varied), std::move(all.points), goal, limits, jobs, progress_of(told)});
    json = to_json(result).dump();
    csv = planner::whatif::to_csv(result);
    try {
      check_answered(result);
    } catch (const NoAnswer& none) {
      refusal = none.what();
    }
    return 0;
  });
  return py::make_tuple(json, refusal, csv);
}

// What a comparison takes beside the job.
struct CompareSettings {
  std::string strategies;
  std::vector<std::string> troubles;
  comparison::OrdealOptions ordeal;
  int stages = 0;
  int jobs = 0;
};

std::string compare_of(const std::string& workload, const std::string& cluster, const Texts& options,
                       const CompareSettings& settings) {
  return without_gil([&] {
    const CompareRequest request{question_of(request_of(workload, cluster, options)),
                                 settings.strategies,
                                 settings.troubles,
                                 settings.ordeal,
                                 settings.stages,
                                 settings.jobs};
    return to_json(request, compare(request)).dump();
  });
}

void define_compare(py::module_& module) {
  using Ordeal = comparison::OrdealOptions;
  py::class_<CompareSettings> settings(module, "CompareSettings");
  settings.def(py::init<>())
      .def_readwrite("strategies", &CompareSettings::strategies)
      .def_readwrite("troubles", &CompareSettings::troubles)
      .def_readwrite("stages", &CompareSettings::stages)
      .def_readwrite("jobs", &CompareSettings::jobs);
  const auto ordeal = [&](const char* name, auto Ordeal::*value, auto least) {
    settings.def_property(
        name, [value](const CompareSettings& of) { return of.ordeal.*value; },
        [name, value, least](CompareSettings& of, decltype(least) given) {
          if (!(given >= least) || !std::isfinite(static_cast<double>(given)))
            throw UserError(fmt::format("`{}` {} (expected a number from {})", name, given, least));
          of.ordeal.*value = static_cast<std::decay_t<decltype(of.ordeal.*value)>>(given);
        });
  };
  ordeal("horizon_s", &Ordeal::horizon_s, 0.0);  // 0: by what happens
  ordeal("checkpoint_every_s", &Ordeal::checkpoint_every_s, 1e-9);
  ordeal("restart_s", &Ordeal::restart_s, 0.0);
  ordeal("replace_s", &Ordeal::replace_s, 0.0);
  ordeal("seed", &Ordeal::seed, std::int64_t{0});
  module.def("compare", &compare_of);
}

template <typename Value>
void field(py::class_<GoodputRequest>& request, const char* name, Value GoodputRequest::*value) {
  request.def_readwrite(name, value);
}

}  // namespace

void define_runs(py::module_& module) {
  module.def("collective", &collective_of);
  py::class_<WhatifLimits>(module, "WhatifLimits")
      .def(py::init<>())
      .def_readwrite("tokens", &WhatifLimits::tokens)
      .def_readwrite("samples", &WhatifLimits::samples)
      .def_readwrite("deadline_days", &WhatifLimits::deadline_days)
      .def_readwrite("budget_usd", &WhatifLimits::budget_usd);
  module.def("whatif", &whatif_of);
  define_compare(module);

  py::class_<TrainingLength>(module, "TrainingLength")
      .def(py::init<>())
      .def_readwrite("tokens", &TrainingLength::tokens)
      .def_readwrite("samples", &TrainingLength::samples)
      .def_readwrite("steps", &TrainingLength::steps);
  py::class_<GoodputRequest> request(module, "GoodputRequest");
  request.def(py::init([](const std::shared_ptr<Plan>& plan) {
    GoodputRequest made;
    made.plan = *plan;
    return made;
  }));
  field(request, "length", &GoodputRequest::length);
  field(request, "mtbf_device_hours", &GoodputRequest::mtbf_device_hours);
  field(request, "mtbf_node_hours", &GoodputRequest::mtbf_node_hours);
  field(request, "checkpoint_bandwidth_bytes_per_s", &GoodputRequest::checkpoint_bandwidth_bytes_per_s);
  field(request, "checkpoint_s", &GoodputRequest::checkpoint_s);
  field(request, "read_s", &GoodputRequest::read_s);
  field(request, "checkpoint_async", &GoodputRequest::checkpoint_async);
  field(request, "snapshot_s", &GoodputRequest::snapshot_s);
  field(request, "checkpoint_every", &GoodputRequest::checkpoint_every);
  field(request, "detect_s", &GoodputRequest::detect_s);
  field(request, "restart_s", &GoodputRequest::restart_s);
  field(request, "spares", &GoodputRequest::spares);
  field(request, "repair_hours", &GoodputRequest::repair_hours);
  field(request, "elastic", &GoodputRequest::elastic);
  field(request, "runs", &GoodputRequest::runs);
  field(request, "seed", &GoodputRequest::seed);
  field(request, "jobs", &GoodputRequest::jobs);
  module.def("goodput", [](const GoodputRequest& asked) {
    return without_gil([&] { return to_json(goodput(asked)).dump(); });
  });
}

}  // namespace orrery::python
