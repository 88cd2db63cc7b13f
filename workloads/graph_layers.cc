#include "workloads/graph_layers.h"

#include <algorithm>

namespace orrery {
namespace {

// A block has something to do before it ends.
bool has_work(const Operator& op) {
  return !op.matmuls.empty() || op.kind == OperatorKind::embedding;
}

// Where blocks begin that single tensors join: flags by operator.
std::vector<bool> single_tensor_cuts(const std::vector<Operator>& operators) {
  const int count = static_cast<int>(operators.size());
  // The last reader of each operator's output; what is empty (shapes, indices) does not hold a cut up.
  std::vector<int> last_reader(operators.size(), -1);
  for (int i = 0; i < count; ++i)
    for (const int input : operators[i].inputs)
      if (operators[input].output_elements > 0) last_reader[input] = std::max(last_reader[input], i);
  std::vector<bool> begins(operators.size(), false);
  int crossing = 0;  // tensors made before i and read at or after it
  std::vector<int> ending(operators.size() + 1, 0);
  bool worked = false;
  for (int i = 0; i < count; ++i) {
    const Operator& op = operators[i];
    begins[i] = crossing == 1 && worked && !op.matmuls.empty() && !op.inputs.empty();
    worked = (worked && !begins[i]) || has_work(op);
    if (last_reader[i] > i) {
      ++crossing;
      ++ending[last_reader[i]];
    }
    crossing -= ending[i];
  }
  return begins;
}

int number_layers(const std::vector<bool>& begins, std::vector<Operator>* operators) {
  int layer = 0;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    layer += begins[i] ? 1 : 0;
    (*operators)[i].layer = layer;
  }
  return layer + 1;
}

}  // namespace

int assign_layers(std::vector<Operator>* operators) {
  return number_layers(single_tensor_cuts(*operators), operators);
}

int refine_layers(std::vector<Operator>* operators) {
  const std::size_t count = operators->size();
  std::vector<bool> begins = single_tensor_cuts(*operators);
  double all = 0;
  for (const Operator& op : *operators) all += op.forward_flops_per_row(0);
  for (std::size_t begin = 0; begin < count;) {
    std::size_t end = begin + 1;
    double flops = (*operators)[begin].forward_flops_per_row(0);
    for (; end < count && !begins[end]; ++end) flops += (*operators)[end].forward_flops_per_row(0);
    bool worked = has_work((*operators)[begin]);
    for (std::size_t i = begin + 1; i < end && flops > kHeavyBlock * all; ++i) {
      const Operator& op = (*operators)[i];
      begins[i] = worked && !op.matmuls.empty();
      worked = (worked && !begins[i]) || has_work(op);
    }
    begin = end;
  }
  return number_layers(begins, operators);
}

}  // namespace orrery
