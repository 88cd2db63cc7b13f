// Recomputation: what is forgotten in the forward pass and run again before its backward pass needs it.
#include <algorithm>
#include <iterator>

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

std::vector<RunAgain> runs_again(const Lowering& lowering, LayerRange layer) {
  std::vector<RunAgain> runs;
  const Job& job = *lowering.plan().job;
  const ModuleSet modules = modules_run_again(lowering.choices(), job.runtime);
  if (modules == 0 || lowering.op(layer.begin).layer >= job.workload.layers) return runs;
  for (int i = layer.begin; i < layer.end; ++i) {
    if (!brought_back(job.workload.operators, i, modules) || !works_backward(lowering.op(i))) continue;
    if (runs.empty() || runs.back().operators.end != i) runs.push_back({{i, i}, i});
    RunAgain& run = runs.back();
    run.operators.end = i + 1;
    // What an attention core put out is kept: it is run again for what it kept to itself.
    const bool core = lowering.op(i).kind == OperatorKind::attention;
    const int needed = core ? i : std::max(i, lowering.use(i).last_consumer);
    run.due = std::max(run.due, std::min(needed, layer.end - 1));
  }
  // What is run again may read what is run again: that comes first.
  for (auto run = runs.rbegin(); run != runs.rend(); ++run)
    for (int i = run->operators.begin; i < run->operators.end; ++i)
      for (const int input : lowering.op(i).inputs)
        for (auto before = std::next(run); before != runs.rend(); ++before)
          if (input >= before->operators.begin && input < before->operators.end)
            before->due = std::max(before->due, run->due);
  return runs;
}

}  // namespace orrery::internal
