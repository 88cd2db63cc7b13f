#include "planner/space/offload.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/format.h"
#include "program/operator_work.h"

namespace orrery::planner {
namespace {

constexpr std::array kNames = {"none", "optimizer", "all"};

// Bytes in one node's memory, states sharded over all devices: the least.
double host_bytes_per_node(const Job& job) {
  const RuntimeProfile& runtime = job.runtime;
  const Training& training = job.training;
  const auto trained = static_cast<double>(job.workload.parameters());
  double frozen = 0;
  for (const Operator& op : job.workload.operators)
    for (const ParameterTensor& tensor : op.frozen) frozen += static_cast<double>(tensor.elements());
  double bytes = trained * runtime.host_states *
                 optimizer_bytes_per_parameter(training.optimizer, training.precision, runtime);
  if (runtime.host_gradients) bytes += trained * gradient_bytes_per_parameter(training.precision, runtime);
  if (runtime.host_parameters) bytes += (trained + frozen) * bytes_of(storage_type(training.precision));
  return bytes / job.cluster.nodes();
}

}  // namespace

std::string_view name_of(Offload offload) {
  return kNames[static_cast<std::size_t>(offload)];
}

Offload offload_from_name(std::string_view name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end())
    throw UserError(fmt::format("`offload` {} is unknown", name), "expected none, optimizer or all");
  return static_cast<Offload>(found - kNames.begin());
}

Offload offload_of(const RuntimeProfile& runtime) {
  return runtime.host_parameters   ? Offload::all
         : runtime.host_states > 0 ? Offload::optimizer
                                   : Offload::none;
}

void set_offload(Offload offload, Job* job, double share_of_states) {
  RuntimeProfile& runtime = job->runtime;
  runtime.host_states = offload == Offload::none ? 0 : share_of_states;
  runtime.host_gradients = offload != Offload::none;
  runtime.host_parameters = offload == Offload::all;
  if (offload == Offload::none) return;
  for (const DeviceProfile& device : job->cluster.profiles)
    if (device.kind == DeviceKind::cpu)
      throw UserError(fmt::format("`offload` {} on processors", name_of(offload)),
                      "expected none: their memory is the host's");
  double least = 0;
  for (const NodeGroup& group : job->cluster.groups)
    if (group.node.host_memory_bytes > 0 && (least == 0 || group.node.host_memory_bytes < least))
      least = group.node.host_memory_bytes;
  const double needed = host_bytes_per_node(*job);
  if (least > 0 && needed > least)
    throw NoAnswer(fmt::format("with `offload` {} each node's host holds {} at least, {} more than its {}",
                               name_of(offload), human_bytes(needed), human_bytes(needed - least),
                               human_bytes(least)));
}

}  // namespace orrery::planner
