// What a workload is, as JSON.
#include "orrery/json.h"

namespace orrery {
namespace {

Json part_json(const Part& part) {
  return {{"parameters", part.parameters},
          {"forward_flops", part.forward_flops},
          {"output_bytes", part.output_bytes}};
}

}  // namespace

Json to_json(const Description& described) {
  const Workload& workload = described.workload;
  Json layers = Json::array();
  for (const Part& part : described.layers) {
    Json layer = {{"first", part.first}, {"count", part.count}, {"holds", part.name}};
    layer.update(part_json(part));
    layers.push_back(std::move(layer));
  }
  Json operators = Json::array();
  for (const Part& part : described.operators) {
    Json kind = {{"kind", part.name}, {"count", part.count}};
    kind.update(part_json(part));
    operators.push_back(std::move(kind));
  }
  Json json = {{"workload", workload.name}, {"source", workload.source}};
  if (workload.transformer) json["family"] = workload.transformer->family;
  json.update({{"layers", workload.layers},
               {"seq_len", described.seq_len},
               {"precision", name_of(described.precision)},
               {"parameters", described.parameters},
               {"active_parameters", described.active_parameters},
               {"weight_bytes", described.weight_bytes},
               {"forward_flops", described.forward_flops},
               {"model_flops", described.model_flops},
               {"output_bytes", described.output_bytes},
               {"parts", layers},
               {"operators", operators},
               {"assumed", described.assumed}});
  return json;
}

}  // namespace orrery
