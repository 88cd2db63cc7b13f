// Recomputation: what is forgotten in the forward pass and run again before its backward pass needs it.
#include "program/lower/workbench.h"

namespace orrery::internal {

bool recomputes_layer(const Lowering& lowering, int chunk, int layer) {
  const Choices& choices = lowering.choices();
  if (choices.recompute != Recompute::full) return false;
  if (layer < 0 || layer >= lowering.plan().job->workload.layers) return false;  // embedding, head
  if (choices.recompute_layers == 0) return true;
  // The first K layers of the stage, its chunks one after another.
  const int stage = lowering.program.at.pp;
  int before = 0;
  for (int earlier = 0; earlier < chunk; ++earlier) {
    const LayerRange range = layers_of(lowering.plan(), stage, earlier);
    before += range.end - range.begin;
  }
  return before + layer - layers_of(lowering.plan(), stage, chunk).begin < choices.recompute_layers;
}

bool recomputes_operator(const Lowering& lowering, int op) {
  const Job& job = *lowering.plan().job;
  return lowering.choices().recompute == Recompute::selective &&
         lowering.op(op).layer < job.workload.layers && brought_back(job.workload.operators, op, job.runtime);
}

}  // namespace orrery::internal
