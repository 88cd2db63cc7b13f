#include "orrery/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/format.h"

namespace orrery {
namespace {

std::int64_t active_parameters(const Operator& op) {
  double sum = 0;
  for (const ParameterTensor& tensor : op.parameters) {
    if (!tensor.tied_to.empty()) continue;
    const bool shared_out = tensor.expert && op.experts > 0;
    sum += static_cast<double>(tensor.elements()) *
           (shared_out ? static_cast<double>(op.active_experts) / op.experts : 1);
  }
  return static_cast<std::int64_t>(sum);
}

// Adds up operators of one workload.
class Sums {
 public:
  Sums(int seq_len, DType precision)
      : seq_len_(seq_len), rows_(std::max(1, seq_len)), element_bytes_(bytes_of(precision)) {}

  void add(const Operator& op, Part& part) const {
    part.parameters += op.parameter_count();
    part.forward_flops += op.forward_flops_per_row(seq_len_) * rows_;
    part.output_bytes += static_cast<double>(op.output_elements) * rows_ * element_bytes_;
  }

 private:
  int seq_len_;
  double rows_, element_bytes_;
};

// What a layer is for: the kinds of its operators that hold parameters or compute products.
std::string name_of_layer(const std::vector<const Operator*>& operators, int seq_len) {
  std::vector<std::string_view> kinds;
  for (const Operator* op : operators) {
    const bool weighty = op->forward_flops_per_row(seq_len) > 0 || op->parameter_count() > 0;
    const bool minor = op->kind == OperatorKind::norm || op->kind == OperatorKind::batch_norm;
    if (!weighty || minor || std::find(kinds.begin(), kinds.end(), name_of(op->kind)) != kinds.end())
      continue;
    kinds.push_back(name_of(op->kind));
  }
  if (kinds.empty()) kinds.push_back(name_of(operators.front()->kind));
  return fmt::format("{}", fmt::join(kinds, ", "));
}

bool alike(const Part& a, const Part& b) {
  return a.name == b.name && a.parameters == b.parameters && a.forward_flops == b.forward_flops &&
         a.output_bytes == b.output_bytes;
}

// Neighbours that are alike in one.
std::vector<Part> groups_of_layers(const Workload& workload, int seq_len, const Sums& sums) {
  std::vector<Part> each;
  for (std::size_t begin = 0, end = 0; begin < workload.operators.size(); begin = end) {
    const int layer = workload.operators[begin].layer;
    Part part{"", layer, 1};
    std::vector<const Operator*> operators;
    for (; end < workload.operators.size() && workload.operators[end].layer == layer; ++end) {
      operators.push_back(&workload.operators[end]);
      sums.add(workload.operators[end], part);
    }
    part.name = name_of_layer(operators, seq_len);
    each.push_back(std::move(part));
  }
  std::vector<Part> groups;
  Part last;  // one layer of the last group
  for (const Part& part : each) {
    if (groups.empty() || !alike(last, part)) {
      groups.push_back(part);
    } else {
      Part& group = groups.back();
      ++group.count;
      group.parameters += part.parameters;
      group.forward_flops += part.forward_flops;
      group.output_bytes += part.output_bytes;
    }
    last = part;
  }
  return groups;
}

std::vector<Part> by_kind(const Workload& workload, const Sums& sums) {
  std::map<OperatorKind, Part> kinds;
  for (const Operator& op : workload.operators) {
    Part& part = kinds[op.kind];
    part.name = name_of(op.kind);
    ++part.count;
    sums.add(op, part);
  }
  std::vector<Part> parts;
  for (auto& [kind, part] : kinds) parts.push_back(std::move(part));
  return parts;
}

// Where a length is told nowhere, a model's positions are it, up to what is usual in training.
std::string of_own_length(const Workload& workload) {
  const int positions = workload.transformer ? workload.transformer->max_positions : 0;
  if (positions <= workload.default_seq_len) return ", the workload's own length";
  return fmt::format(", the most that is taken unless told otherwise; the model has {} positions",
                     with_commas(positions));
}

std::vector<std::string> assumptions(const Description& described, bool own_length) {
  const Workload& workload = described.workload;
  std::vector<std::string> texts;
  if (described.seq_len > 0)
    texts.push_back(fmt::format("Sequences have {} tokens{}.", with_commas(described.seq_len),
                                own_length ? of_own_length(workload) : ""));
  const bool causal = std::any_of(workload.operators.begin(), workload.operators.end(),
                                  [](const Operator& op) { return op.attention && op.attention->causal; });
  if (causal) texts.emplace_back("Causal attention computes half of all pairs of queries and keys.");
  if (described.active_parameters != described.parameters)
    texts.emplace_back("Experts receive equally many tokens.");
  if (workload.published_parameters > 0)
    texts.push_back(fmt::format("Its publisher counts {} parameters, {:+.2f}% relative to this count.",
                                with_commas(workload.published_parameters),
                                100 * (static_cast<double>(workload.published_parameters) /
                                           static_cast<double>(described.parameters) -
                                       1)));
  texts.insert(texts.end(), workload.notes.begin(), workload.notes.end());
  if (!workload.ignored_keys.empty())
    texts.push_back(fmt::format("Ignored of its file: {}.", fmt::join(workload.ignored_keys, ", ")));
  return texts;
}

}  // namespace

Description describe(const Workload& workload, int seq_len, DType precision) {
  const bool sequences = workload.default_seq_len > 0 || workload.transformer;
  if (!sequences && seq_len > 0)
    throw UserError(fmt::format("`seq_len` does not apply to {}", workload.name),
                    "expected none: the workload says how large its samples are");
  Description described;
  described.seq_len = seq_len > 0 ? seq_len : workload.default_seq_len;
  if (sequences && described.seq_len == 0)
    throw UserError(fmt::format("{} says nothing about its sequence length", workload.name),
                    "expected `seq_len`, in tokens");
  // 8 bits and fewer are types of products' operands: what is kept is bf16.
  described.precision = is_narrow(precision) ? DType::bf16 : precision;
  const Sums sums(described.seq_len, described.precision);
  Part all;
  for (const Operator& op : workload.operators) {
    sums.add(op, all);
    described.active_parameters += active_parameters(op);
  }
  described.parameters = all.parameters;
  described.weight_bytes = static_cast<double>(all.parameters) * bytes_of(described.precision);
  described.forward_flops = all.forward_flops;
  described.model_flops = 3 * all.forward_flops;
  described.output_bytes = all.output_bytes;
  described.layers = groups_of_layers(workload, described.seq_len, sums);
  described.operators = by_kind(workload, sums);
  described.workload = workload;
  described.assumed = assumptions(described, seq_len == 0);
  return described;
}

}  // namespace orrery
