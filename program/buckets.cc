#include "program/buckets.h"

#include <algorithm>
#include <cmath>

#include "program/operator_shard.h"

namespace orrery {
namespace {

// Elements from which on a tensor is gathered by itself, where tensors are: smaller ones DeepSpeed does not
// even shard (stage3_param_persistence_threshold: 1e5).
constexpr std::int64_t kOwnTensor = 100'000;

bool has_place_elsewhere(const BucketLayout& layout, const ParameterAt& at) {
  return std::find(layout.shared.begin(), layout.shared.end(), at) != layout.shared.end() ||
         std::any_of(layout.aliases.begin(), layout.aliases.end(),
                     [&](const auto& alias) { return alias.first == at; });
}

// Of the parameter among the held ones, or -1.
int index_of(const HeldParameters& held, const ParameterAt& at) {
  for (int i = held.first_below(at.op + 1); i < static_cast<int>(held.parameters.size()); ++i) {
    const ParameterAt& here = held.parameters[static_cast<std::size_t>(i)].at;
    if (here == at) return i;
    if (here.op < at.op) break;
  }
  return -1;
}

class Layout {
 public:
  Layout(const Plan& plan, int stage, const HeldModel& held) : plan_(plan), held_(held) {
    for (int chunk = 0; chunk < plan.choices.interleave; ++chunk)
      ranges_.push_back(operators_of(plan, stage, chunk));
    by_layer_ = plan.choices.zero == 3;  // FSDP's unit: what is gathered together is used together
    by_tensor_ = by_layer_ && plan.job->runtime.gathers_by_tensor;
    // Widths are powers of two: an exact quotient.
    const double limit = plan.bucket_bytes() / bytes_of(plan.gradient_type());
    if (limit > 0) most_elements_ = static_cast<std::int64_t>(std::min(limit, 1e18));
  }

  BucketLayout run(const TiedTensors& ties) {
    for (const auto& [name, tie] : ties) resolve(tie);
    for (int chunk = plan_.choices.interleave - 1; chunk >= 0; --chunk) {
      lay_out(chunk, /*apart=*/false);
      lay_out(chunk, /*apart=*/true);
      for (const ParameterAt& at : result_.shared)
        if (is_in(ranges_[static_cast<std::size_t>(chunk)], at.op)) lay_out_shared(chunk, at);
    }
    for (int chunk = plan_.choices.interleave - 1; by_layer_ && chunk >= 0; --chunk)
      for (const bool apart : {false, true}) lay_out_frozen(chunk, apart);
    return std::move(result_);
  }

 private:
  static bool is_in(const LayerRange& range, int op) { return op >= range.begin && op < range.end; }

  bool is_local(int op) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [op](const LayerRange& range) { return is_in(range, op); });
  }

  void resolve(const TiedTensor& tie) {
    bool held = is_local(tie.owner.op);
    bool used_elsewhere = !held;
    ParameterAt place = tie.owner;
    for (const ParameterAt& alias : tie.aliases) {
      if (!is_local(alias.op)) {
        used_elsewhere = true;
      } else if (!held) {
        place = alias;
        held = true;
      } else {
        result_.aliases.emplace_back(alias, place);
      }
    }
    if (held && used_elsewhere) result_.shared.push_back(place);
  }

  // In [begin, end), those whose place is elsewhere, in order.
  std::vector<int> left_out(const HeldParameters& held, int begin, int end) const {
    std::vector<int> indices;
    const auto add = [&](const ParameterAt& at) {
      const int index = index_of(held, at);
      if (index >= begin && index < end) indices.push_back(index);
    };
    for (const ParameterAt& at : result_.shared) add(at);
    for (const auto& [alias, place] : result_.aliases) add(alias);
    std::sort(indices.begin(), indices.end());
    return indices;
  }

  void lay_out(int chunk, bool apart) {
    const HeldParameters& held = held_.of(apart);
    const LayerRange& range = ranges_[static_cast<std::size_t>(chunk)];
    int begin = held.first_below(range.end);
    const int end = held.first_below(range.begin);
    open_ = {};
    open_.chunk = chunk;
    open_.apart = apart;
    for (const int index : left_out(held, begin, end)) {
      fill(held, begin, index);
      begin = index + 1;
    }
    fill(held, begin, end);
    close();
  }

  void lay_out_frozen(int chunk, bool apart) {
    const LayerRange& range = ranges_[static_cast<std::size_t>(chunk)];
    open_ = {};
    open_.chunk = chunk;
    open_.frozen = true;
    open_.apart = apart;
    const HeldParameters& held = held_.of_frozen(apart);
    fill(held, held.first_below(range.end), held.first_below(range.begin));
    close();
    open_ = {};
  }

  // With parameters that follow one another.
  void fill(const HeldParameters& held, int begin, int end) {
    while (begin < end) {
      const bool sparse = held.parameters[static_cast<std::size_t>(begin)].sparse;
      if (!is_empty() && open_.sparse != sparse) close();
      int alike = begin + 1;
      while (alike < end && held.parameters[static_cast<std::size_t>(alike)].sparse == sparse) ++alike;
      // Of sparse ones little is sent, whatever their size.
      const int taken = sparse ? alike : fitting(held, begin, alike);
      if (taken > begin) add(held, begin, taken);
      begin = taken;
      if (begin < alike) close();
    }
  }

  bool is_empty() const { return open_.end == 0; }

  // The end of what the open bucket takes of [begin, end): at least one if it is empty.
  int fitting(const HeldParameters& held, int begin, int end) const {
    const auto first = static_cast<std::size_t>(is_empty() ? begin : open_.begin);
    if (by_layer_) {
      const int layer_end = std::clamp(held.layer_end[first], begin, end);
      return by_tensor_ ? end_of_tensor(held, begin, layer_end) : layer_end;
    }
    if (most_elements_ < 0) return end;
    const std::int64_t* before = held.elements_before.data();
    const std::int64_t most = before[begin] + most_elements_ - open_.elements;
    int taken = is_empty() ? begin + 1 : begin;
    while (taken < end && before[taken + 1] <= most) ++taken;
    return taken;
  }

  // One large tensor, and the small ones about it.
  int end_of_tensor(const HeldParameters& held, int begin, int end) const {
    std::int64_t elements = open_.elements;
    for (int i = begin; i < end; ++i) {
      const std::int64_t own = held.parameters[static_cast<std::size_t>(i)].elements;
      if (own >= kOwnTensor && elements >= kOwnTensor) return i;
      elements += own;
    }
    return end;
  }

  void add(const HeldParameters& held, int begin, int end) {
    if (is_empty()) open_.begin = begin;
    open_.end = end;
    const auto from = static_cast<std::size_t>(begin), to = static_cast<std::size_t>(end);
    open_.elements += held.elements_before[to] - held.elements_before[from];
    if (open_.frozen) return;
    open_.sparse = held.parameters[from].sparse;
    for (std::size_t i = from; open_.sparse && i < to; ++i) {
      open_.payload_bytes += held.parameters[i].payload_bytes;
      open_.touched += held.parameters[i].touched;
    }
    if (!is_reduced_apart(open_)) open_.partial += held.partial_before[to] - held.partial_before[from];
  }

  void close() {
    if (is_empty()) return;
    result_.buckets.push_back(open_);
    open_.begin = open_.end = 0;
    open_.elements = open_.partial = 0;
    open_.payload_bytes = open_.touched = 0;
    open_.sparse = false;
  }

  void lay_out_shared(int chunk, const ParameterAt& at) {
    open_ = {};
    open_.chunk = chunk;
    open_.tied = true;
    int index = index_of(held_.together, at);
    open_.apart = index < 0;
    if (open_.apart) index = index_of(held_.apart, at);
    add(held_.of(open_.apart), index, index + 1);
    close();
  }

  const Plan& plan_;
  const HeldModel& held_;
  bool by_layer_ = false, by_tensor_ = false;
  std::int64_t most_elements_ = -1;  // of a bucket; -1: no limit
  std::vector<LayerRange> ranges_;
  LaidBucket open_;
  BucketLayout result_;
};

// Sums and ends of layers, from the parameters and their layers.
void complete(const std::vector<int>& layers, HeldParameters* held) {
  std::int64_t elements = 0, partial = 0;
  for (const HeldParameter& parameter : held->parameters) {
    held->elements_before.push_back(elements);
    held->partial_before.push_back(partial);
    elements += parameter.elements;
    if (parameter.partial) partial += parameter.elements;
  }
  held->elements_before.push_back(elements);
  held->partial_before.push_back(partial);
  held->layer_end.assign(layers.size(), static_cast<int>(layers.size()));
  for (std::size_t i = layers.size(); i-- > 1;)
    held->layer_end[i - 1] = layers[i - 1] == layers[i] ? held->layer_end[i] : static_cast<int>(i);
}

// A tensor that is one with another is gathered with that, where one chunk has both.
HeldParameters held_frozen(const Plan& plan, const Shard& shard, bool experts_apart, bool apart) {
  HeldParameters held;
  std::vector<int> layers;
  const double unit = bytes_of(plan.parameter_type());
  const std::vector<Operator>& operators = plan.job->workload.operators;
  for (std::size_t i = operators.size(); i-- > 0;) {
    const Operator& op = operators[i];
    for (std::size_t p = 0; p < op.frozen.size(); ++p) {
      const ParameterTensor& tensor = op.frozen[p];
      if (!tensor.tied_to.empty() && plan.choices.pp == 1) continue;
      if ((tensor.expert && experts_apart) != apart) continue;
      const auto elements =
          static_cast<std::int64_t>(std::ceil(frozen_bytes(op, tensor, shard, plan.job->runtime) / unit));
      held.parameters.push_back({{static_cast<int>(i), static_cast<int>(p)}, elements, false});
      layers.push_back(op.layer);
    }
  }
  complete(layers, &held);
  return held;
}

// Of a table, as this rank holds it, with gradients that `replicas` share out.
void make_sparse(const Plan& plan, const Operator& op, double replicas, HeldParameter* held) {
  const SparseRows rows = sparse_rows(
      op, static_cast<double>(held->elements), op.split == TensorSplit::column ? plan.choices.tp : 1,
      static_cast<double>(plan.job->training.global_batch), replicas, bytes_of(plan.gradient_type()));
  held->sparse = true;
  held->payload_bytes = rows.payload_bytes;
  held->touched = rows.touched;
}

}  // namespace

SparseRows sparse_rows(const Operator& table, double elements, int columns, double samples, double replicas,
                       double gradient_bytes) {
  constexpr double kRowNumber = 8;  // bytes
  const std::vector<std::int64_t>& shape = table.parameters.front().shape;
  const auto rows = static_cast<double>(shape[0]);
  const double width = static_cast<double>(shape[1]) / columns;
  const double own = elements * touched_rows(*table.sparse, rows, samples / replicas, 1) / rows;
  return {own * (gradient_bytes + kRowNumber / width),
          elements * touched_rows(*table.sparse, rows, samples / replicas, replicas) / rows};
}

bool keeps_rows_sparse(const Plan& plan) {
  const Choices& c = plan.choices;
  return c.sync == Sync::all_reduce && c.zero <= 1 && !c.hybrid() && c.grad_compression == Compression::none;
}

TiedTensors tied_tensors(const Workload& workload) {
  TiedTensors ties;
  const auto visit = [&](auto found) {
    for (std::size_t i = 0; i < workload.operators.size(); ++i)
      for (std::size_t p = 0; p < workload.operators[i].parameters.size(); ++p)
        found(workload.operators[i].parameters[p], ParameterAt{static_cast<int>(i), static_cast<int>(p)});
  };
  visit([&](const ParameterTensor& tensor, const ParameterAt& at) {
    if (!tensor.tied_to.empty()) ties[tensor.tied_to].aliases.push_back(at);
  });
  if (ties.empty()) return ties;
  visit([&](const ParameterTensor& tensor, const ParameterAt& at) {
    const auto tie = ties.find(tensor.name);
    if (tie != ties.end() && tensor.tied_to.empty()) tie->second.owner = at;
  });
  return ties;
}

int HeldParameters::first_below(int op) const {
  const auto at = std::partition_point(parameters.begin(), parameters.end(),
                                       [op](const HeldParameter& held) { return held.at.op >= op; });
  return static_cast<int>(at - parameters.begin());
}

HeldModel held_parameters(const Plan& plan) {
  const Workload& workload = plan.job->workload;
  const Shard shard = shard_of(plan);
  const bool experts_apart = plan.choices.ep > 1 || shard.sequence_parallel;
  HeldModel all;
  std::vector<int> together_layers, apart_layers;
  for (std::size_t i = workload.operators.size(); i-- > 0;) {
    const Operator& op = workload.operators[i];
    for (std::size_t p = 0; p < op.parameters.size(); ++p) {
      const ParameterTensor& tensor = op.parameters[p];
      const std::int64_t elements = local_elements(tensor, shard);
      const bool partial = gradient_is_partial(op, tensor, shard);
      // Where experts are on every rank and see what the rest of the layer sees, they are parameters like any
      // other. What tensor ranks of a general graph hold whole is reduced over them too: each saw samples of
      // its own.
      const bool apart = workload.transformer ? tensor.expert && experts_apart : partial;
      const ParameterAt at{static_cast<int>(i), static_cast<int>(p)};
      HeldParameter held{at, elements, partial};
      if (op.sparse && keeps_rows_sparse(plan))
        make_sparse(plan, op, static_cast<double>(plan.choices.dp) * (apart ? plan.choices.tp : 1), &held);
      (apart ? all.apart : all.together).parameters.push_back(held);
      (apart ? apart_layers : together_layers).push_back(op.layer);
    }
  }
  complete(together_layers, &all.together);
  complete(apart_layers, &all.apart);
  all.frozen = held_frozen(plan, shard, experts_apart, false);
  all.frozen_apart = held_frozen(plan, shard, experts_apart, true);
  return all;
}

BucketLayout bucket_layout(const Plan& plan, int stage, const TiedTensors& ties, const HeldModel& held) {
  return Layout(plan, stage, held).run(ties);
}

std::vector<HeldParameter> parameters_of(const BucketLayout& layout, const LaidBucket& bucket,
                                         const HeldModel& held) {
  if (bucket.frozen) {
    const auto begin = held.of_frozen(bucket.apart).parameters.begin();
    return {begin + bucket.begin, begin + bucket.end};
  }
  const std::vector<HeldParameter>& parameters = held.of(bucket.apart).parameters;
  std::vector<HeldParameter> placed;
  for (int i = bucket.begin; i < bucket.end; ++i) {
    const HeldParameter& parameter = parameters[static_cast<std::size_t>(i)];
    if (!bucket.tied && has_place_elsewhere(layout, parameter.at)) continue;
    placed.push_back(parameter);
    placed.back().partial = parameter.partial && !is_reduced_apart(bucket);
  }
  return placed;
}

GroupKind bucket_group(const Choices& choices, bool apart) {
  if (apart) return GroupKind::expert_data;
  return choices.hybrid() ? GroupKind::shard : GroupKind::data;
}

}  // namespace orrery
