// Predicted beside measured, and calibration by what was measured.
#include "base/error.h"
#include "exec/launch/launcher.h"
#include "python/bindings.h"

namespace orrery::python {
namespace {

MpiLibrary library_of(const std::string& mpi) {
  return mpi.empty() ? detect_mpi_library() : mpi_library_from_name(mpi);
}

// What an executor ended with becomes the exception that it would have been here, with its own text.
void check_ended(int exit_code, const std::string& said) {
  if (exit_code == 0) return;
  constexpr std::string_view kPrefix = "orrery: ";
  std::string text = said.empty() ? "the executor ended with exit code " + std::to_string(exit_code) : said;
  if (text.starts_with(kPrefix)) text.erase(0, kPrefix.size());
  while (!text.empty() && text.back() == '\n') text.pop_back();
  constexpr int kUsage = 2, kNo = 3;  // exit codes: base/error.h
  if (exit_code == kUsage) throw UserError(text);
  if (exit_code == kNo) throw NoAnswer(text);
  throw InternalError(text);
}

// The JSON, and why it could not be remembered (empty: it was).
std::pair<std::string, std::string> validate_plan(const std::string& file, int steps,
                                                  const std::string& backend, const std::string& data,
                                                  const std::string& mpi,
                                                  const std::vector<std::string>& mpirun_args) {
  return without_gil([&] {
    const Plan plan = load_plan(file);
    MeasureRequest request;
    request.plan_file = file;
    request.ranks = plan.choices.world();
    request.steps = steps;
    request.backend = backend;
    request.data = data;
    request.pace = plan.job->cluster.nodes() == 1;
    request.mpi = library_of(mpi);
    request.placement = placement_of(plan.job->cluster, request.ranks);
    request.placement.mpirun_args = mpirun_args;
    request.quiet = true;
    const planner::Evaluation predicted = predict(plan);
    const Measured measured = measure(request);
    check_ended(measured.exit_code, measured.said);
    const planner::Validation validation = validate(predicted, measured.measurement);
    return std::pair(to_json(predicted, measured.measurement, validation, steps).dump(),
                     remember(history_entry(predicted, validation, steps)));
  });
}

std::string calibrate_here(const std::string& out, const std::string& mpi) {
  return without_gil([&] {
    const MachineCalibrated result = calibrate_machine(library_of(mpi), out);
    check_ended(result.exit_code, result.said);
    return result.report.dump();
  });
}

std::string calibrate_these_hosts(const std::string& cluster, const std::string& host, const std::string& out,
                                  const std::string& mpi, const std::vector<std::string>& mpirun_args) {
  return without_gil([&] {
    const MachineCalibrated result = calibrate_hosts(library_of(mpi), {cluster, host, out, mpirun_args});
    check_ended(result.exit_code, result.said);
    return result.report.dump();
  });
}

}  // namespace

void define_measurements(py::module_& module) {
  module.def("validate", &validate_plan);
  module.def("against", [](const Plan& plan, const std::vector<std::string>& files) {
    return without_gil([&] { return to_json(against(plan, files)).dump(); });
  });
  module.def("calibrate", &calibrate_here);
  module.def("calibrate_hosts", &calibrate_these_hosts);
  module.def("calibrate_from", [](const std::string& cluster, const std::vector<std::string>& files,
                                  const std::string& runtime, const std::string& out) {
    return without_gil([&] { return to_json(calibrate_from({cluster, files, runtime, out})).dump(); });
  });
  module.def("history", [] { return without_gil([] { return to_json(read_history()).dump(); }); });
}

}  // namespace orrery::python
