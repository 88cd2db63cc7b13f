// Plans as Python holds them, the search for them, and their way into the files of other systems.
#include "base/error.h"
#include "python/bindings.h"

namespace orrery::python {
namespace {

// A search's JSON, and its plans in that order.
py::tuple plan_of(const std::string& workload, const std::string& cluster, const Texts& options, int jobs,
                  bool pareto, const std::function<void(int, int)>& told) {
  std::string json;
  std::vector<std::shared_ptr<Plan>> plans;
  std::vector<std::string> ignored, assumed;
  without_gil([&] {
    Question question = question_of(request_of(workload, cluster, options));
    question.search.jobs = jobs;
    question.search.pareto = pareto;
    const auto counted = progress_of(told), interruptible = progress_of({});
    question.search.progress = [&](std::string_view what, int done, int total) {
      (what.starts_with("simulating") ? counted : interruptible)(done, total);
    };
    const planner::SearchResult result = plan(question);
    json = to_json(*question.job, result).dump();
    for (const planner::Evaluation& one : result.plans) plans.push_back(std::make_shared<Plan>(one.plan));
    ignored = question.ignored;
    assumed = question.assumed;
    return 0;
  });
  return py::make_tuple(json, plans, ignored, assumed);
}

// Name and content of each; bytes where it is binary.
py::list exported(const Plan& plan, const std::string& target, bool all_ranks) {
  const auto files = without_gil(
      [&] { return planner::export_plan(plan, planner::export_target_from_name(target), {all_ranks}); });
  py::list list;
  for (const planner::ExportedFile& file : files)
    list.append(py::make_tuple(
        file.name, file.binary ? py::object(py::bytes(file.content)) : py::object(py::str(file.content))));
  return list;
}

}  // namespace

Request request_of(const std::string& workload, const std::string& cluster, const Texts& options) {
  Request request;
  request.workload = workload;
  request.cluster = cluster;
  for (const auto& [key, text] : options) set(request, key, text);
  return request;
}

void define_plans(py::module_& module) {
  py::class_<Plan, std::shared_ptr<Plan>>(module, "Plan")
      .def("save", [](const Plan& plan, const std::string& file) { write_plan(plan, file); })
      .def("words", [](const Plan& plan) { return planner::describe(plan); })
      .def("world", [](const Plan& plan) { return plan.choices.world(); })
      .def("micro_batches", [](const Plan& plan) { return plan.micro_batches(); })
      .def("job", [](const Plan& plan) { return to_json(*plan.job).dump(); })
      .def("json",
           [](const Plan& plan) {
             return without_gil([&] { return to_json(planner::evaluate(plan)).dump(); });
           })
      .def("export", &exported);
  module.def("load_plan", [](const std::string& file) {
    return without_gil([&] { return std::make_shared<Plan>(load_plan(file)); });
  });
  module.def("plan", &plan_of);
}

}  // namespace orrery::python
