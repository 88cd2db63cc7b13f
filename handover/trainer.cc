#include "handover/trainer.h"

#include <fmt/format.h>

#include <cctype>

#include "base/error.h"
#include "handover/export_common.h"

namespace orrery::planner {
namespace {

void check_nodes(const Plan& plan, std::string_view target) {
  if (plan.choices.world() % ranks_per_node(plan) != 0)
    throw UserError(fmt::format("a plan of {} ranks on nodes of {} devices cannot be exported to {}",
                                plan.choices.world(), ranks_per_node(plan), target),
                    "expected whole nodes");
}

}  // namespace

Trainer trainer_for(const Plan& plan, std::string_view target) {
  check_nodes(plan, target);
  const std::string& runtime = plan.job->runtime.name;
  if (runtime == "torchtitan") return {export_torchtitan(plan), {}, true};
  if (runtime == "megatron-core") return {export_megatron(plan), {}, false};
  if (runtime == "megatron-lm-2022" || runtime == "typical")
    return {export_megatron(plan),
            {fmt::format("the plan's times are those of runtime {}; this launches Megatron-LM core, for "
                         "which plan with --runtime megatron-core",
                         runtime)},
            false};
  throw UserError(fmt::format("`to` {}: starts no plan of runtime {}", target, runtime),
                  "expected a plan made with --runtime megatron-core or torchtitan");
}

std::string job_name(const Plan& plan) {
  constexpr std::size_t kLongest = 40;  // Kubernetes allows 63, of which the names of pods take some
  std::string name;
  for (const char c : plan.job->workload.name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && std::isalnum(byte))
      name += static_cast<char>(std::tolower(byte));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  name = name.substr(0, kLongest);
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front()))) name.insert(0, "plan-");
  while (name.back() == '-') name.pop_back();
  return name;
}

std::string gpu_resource(const Plan& plan) {
  switch (plan.job->cluster.communication.library) {
    case CommunicationLibrary::nccl:
      return "nvidia.com/gpu";
    case CommunicationLibrary::rccl:
      return "amd.com/gpu";
    default:
      return {};
  }
}

}  // namespace orrery::planner
