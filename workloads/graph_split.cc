#include "workloads/graph_split.h"

#include <algorithm>

#include "base/error.h"

namespace orrery {
namespace {

// Takes a column-split input as it is.
bool takes_features(const Operator& op) {
  return op.split == TensorSplit::row || (op.split == TensorSplit::column && keeps_features_apart(op));
}

// The first dimension of that size; -1: none.
int dimension_of(const std::vector<std::int64_t>& shape, std::int64_t size) {
  const auto at = std::find(shape.begin(), shape.end(), size);
  return at == shape.end() ? -1 : static_cast<int>(at - shape.begin());
}

// Of a sequence's product, whose outputs stand side by side; else 1.
std::int64_t weights_of(const Operator& op) {
  if (!op.image || !op.image->sequence) return 1;
  return std::max<std::int64_t>(1,
                                std::count_if(op.parameters.begin(), op.parameters.end(),
                                              [](const ParameterTensor& p) { return p.shape.size() > 1; }));
}

std::vector<std::vector<int>> readers_of(const std::vector<Operator>& operators) {
  std::vector<std::vector<int>> readers(operators.size());
  for (std::size_t i = 0; i < operators.size(); ++i)
    for (const int input : operators[i].inputs)
      readers[static_cast<std::size_t>(input)].push_back(static_cast<int>(i));
  return readers;
}

}  // namespace

bool is_sequence_attention(const Operator& op) {
  return op.kind == OperatorKind::linear && op.parameters.empty() && op.frozen.empty() && op.image &&
         op.image->heads > 0;
}

bool keeps_features_apart(const Operator& op) {
  if (op.kind == OperatorKind::elementwise)  // but for what makes tokens of an image
    return !(op.image && op.image->sequence && op.inputs.size() == 1);
  return op.kind == OperatorKind::activation || op.kind == OperatorKind::batch_norm ||
         op.kind == OperatorKind::pool || is_sequence_attention(op);
}

std::int64_t parts_to_share(const Operator& op, TensorSplit split) {
  if (op.image && op.image->heads > 0 && split == TensorSplit::column) return op.image->heads;
  if (op.kind == OperatorKind::embedding) return op.output_elements;
  return split == TensorSplit::row ? op.matmuls.front().k : op.matmuls.front().n;
}

bool can_be_split(const Operator& op) {
  if (op.parameters.empty() || op.inputs.size() > 1) return false;
  if (op.kind == OperatorKind::embedding)
    return op.parameters.size() == 1 && op.parameters.front().shape.size() == 2;
  if (op.kind != OperatorKind::linear && op.kind != OperatorKind::conv) return false;
  if (op.matmuls.size() != 1 || op.matmuls.front().groups != 1) return false;
  const std::vector<std::int64_t>& weight = op.parameters.front().shape;
  return weight.size() >= 2 && dimension_of(weight, op.matmuls.front().n / weights_of(op)) >= 0;
}

bool can_be_split(const Operator& op, TensorSplit split) {
  if (!can_be_split(op)) return false;
  // Queries, keys and values are split by heads.
  if (op.image && op.image->heads > 0) return split == TensorSplit::column;
  return split == TensorSplit::column || split == TensorSplit::row ||
         (split == TensorSplit::table && op.kind == OperatorKind::embedding);
}

void set_split(Operator* op, TensorSplit split) {
  op->split = split;
  for (ParameterTensor& tensor : op->parameters) {
    tensor.split_dim = -1;
    tensor.dealt_out = false;
  }
  if (split == TensorSplit::replicated) return;
  ORRERY_CHECK(can_be_split(*op, split), "it is not split so: " + op->name);
  if (op->kind == OperatorKind::embedding) {
    op->parameters.front().split_dim = split == TensorSplit::column ? 1 : 0;
    op->parameters.front().dealt_out = split == TensorSplit::table;
    return;
  }
  const std::int64_t n = op->matmuls.front().n / weights_of(*op);
  for (ParameterTensor& tensor : op->parameters) {
    if (tensor.shape.size() == 1) {  // a bias is added after a row-split product's sum, once
      if (split == TensorSplit::column && tensor.shape.front() == n) tensor.split_dim = 0;
      continue;
    }
    const int out = dimension_of(tensor.shape, n);
    if (split == TensorSplit::column) {
      tensor.split_dim = out;
    } else {
      tensor.split_dim = out == 0 ? 1 : 0;  // outputs x inputs x kernel, or inputs x outputs
    }
  }
}

int complete_splits(std::vector<Operator>* operators) {
  const std::vector<std::vector<int>> readers = readers_of(*operators);
  // Forward: what could carry features; backward: what someone takes them from.
  std::vector<bool> carries(operators->size(), false);
  for (std::size_t i = 0; i < operators->size(); ++i) {
    const Operator& op = (*operators)[i];
    if (can_be_split(op)) {
      carries[i] = op.split == TensorSplit::column;
      continue;
    }
    carries[i] = keeps_features_apart(op) && !op.inputs.empty() &&
                 std::all_of(op.inputs.begin(), op.inputs.end(),
                             [&](int input) { return carries[static_cast<std::size_t>(input)]; });
  }
  for (std::size_t i = operators->size(); i-- > 0;) {
    Operator& op = (*operators)[i];
    if (can_be_split(op)) continue;
    // What heads put out goes back to its samples where nobody takes it; what makes their input would have
    // to be put in order.
    const bool taken =
        carries[i] &&
        (is_sequence_attention(op) ||
         (!readers[i].empty() && std::all_of(readers[i].begin(), readers[i].end(), [&](int reader) {
           return takes_features((*operators)[static_cast<std::size_t>(reader)]);
         })));
    op.split = taken ? TensorSplit::column : TensorSplit::replicated;
    for (ParameterTensor& tensor : op.parameters)
      tensor.split_dim = taken && tensor.shape.size() == 1 ? 0 : -1;
  }
  // An operator with an input whose features return takes them whole: it cannot stand inside.
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < operators->size(); ++i) {
      Operator& op = (*operators)[i];
      if (can_be_split(op) || op.split != TensorSplit::column) continue;
      const bool whole = std::any_of(op.inputs.begin(), op.inputs.end(), [&](int input) {
        const auto& before = readers[static_cast<std::size_t>(input)];
        return (*operators)[static_cast<std::size_t>(input)].split != TensorSplit::column ||
               !std::all_of(before.begin(), before.end(), [&](int reader) {
                 return takes_features((*operators)[static_cast<std::size_t>(reader)]);
               });
      });
      if (!whole) continue;
      op.split = TensorSplit::replicated;
      for (ParameterTensor& tensor : op.parameters) tensor.split_dim = -1;
      changed = true;
    }
  }
  for (std::size_t i = 0; i < operators->size(); ++i) {
    const Operator& op = (*operators)[i];
    if (op.split != TensorSplit::row || op.kind == OperatorKind::embedding) continue;
    const bool whole = std::any_of(op.inputs.begin(), op.inputs.end(), [&](int input) {
      return (*operators)[static_cast<std::size_t>(input)].split != TensorSplit::column ||
             features_return(*operators, input);
    });
    if (whole || op.inputs.empty()) return static_cast<int>(i);
  }
  return -1;
}

bool features_return(const std::vector<Operator>& operators, int index) {
  const TensorSplit split = operators[static_cast<std::size_t>(index)].split;
  if (split == TensorSplit::table) return true;
  if (split != TensorSplit::column) return false;
  bool read = false;
  for (std::size_t i = static_cast<std::size_t>(index) + 1; i < operators.size(); ++i) {
    const auto& inputs = operators[i].inputs;
    if (std::find(inputs.begin(), inputs.end(), index) == inputs.end()) continue;
    read = true;
    if (!takes_features(operators[i])) return true;
  }
  return !read;
}

std::vector<DealtRank> deal_tables(const std::vector<const Operator*>& tables, int ranks) {
  std::vector<const Operator*> largest_first = tables;
  std::stable_sort(largest_first.begin(), largest_first.end(), [](const Operator* a, const Operator* b) {
    return a->parameter_count() > b->parameter_count();
  });
  std::vector<DealtRank> held(static_cast<std::size_t>(ranks));
  const int most = (static_cast<int>(tables.size()) + ranks - 1) / ranks;
  for (const Operator* table : largest_first) {
    DealtRank* to = nullptr;
    for (DealtRank& rank : held)
      if (rank.tables < most && (to == nullptr || rank.elements < to->elements)) to = &rank;
    to->elements += static_cast<double>(table->parameter_count());
    to->outputs += static_cast<double>(table->output_elements);
    ++to->tables;
  }
  return held;
}

DealtTables dealt_tables(const std::vector<Operator>& operators, int ranks) {
  std::vector<const Operator*> tables;
  for (const Operator& op : operators)
    if (op.split == TensorSplit::table) tables.push_back(&op);
  if (tables.empty() || ranks <= 1) return {};
  DealtRank all, fullest;
  for (const DealtRank& rank : deal_tables(tables, ranks)) {
    all.elements += rank.elements;
    all.outputs += rank.outputs;
    fullest.elements = std::max(fullest.elements, rank.elements);
    fullest.outputs = std::max(fullest.outputs, rank.outputs);
  }
  return {fullest.elements / all.elements, fullest.outputs / all.outputs};
}

std::vector<int> split_operators(const Workload& workload) {
  std::vector<int> found;
  if (workload.transformer) return found;
  for (std::size_t i = 0; i < workload.operators.size(); ++i) {
    const Operator& op = workload.operators[i];
    if (op.split != TensorSplit::replicated && can_be_split(op)) found.push_back(static_cast<int>(i));
  }
  return found;
}

}  // namespace orrery
