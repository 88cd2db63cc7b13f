#include "program/buckets.h"

#include <algorithm>

#include "program/operator_shard.h"

namespace orrery {
namespace {

// Elements from which on a tensor is gathered by itself, where tensors are: smaller ones DeepSpeed does not
// even shard (stage3_param_persistence_threshold: 1e5).
constexpr std::int64_t kOwnTensor = 100'000;

class Layout {
 public:
  Layout(const Plan& plan, int stage, const std::vector<HeldParameter>& held)
      : plan_(plan), held_(held), element_bytes_(bytes_of(plan.gradient_type())) {
    for (int chunk = 0; chunk < plan.choices.interleave; ++chunk)
      ranges_.push_back(operators_of(plan, stage, chunk));
  }

  BucketLayout run(const TiedTensors& ties) {
    for (const auto& [name, tie] : ties) resolve(tie);
    std::size_t all = 0;
    for (const LayerRange& range : ranges_) all += first_of(range.end) - first_of(range.begin);
    result_.parameters.reserve(all);
    result_.partial.reserve(all);
    for (int chunk = plan_.choices.interleave - 1; chunk >= 0; --chunk) {
      if (lay_out_chunk(chunk, /*apart=*/false)) lay_out_chunk(chunk, /*apart=*/true);
      for (const ParameterAt& at : shared_) {
        if (!is_in(ranges_[static_cast<std::size_t>(chunk)], at.op)) continue;
        append(held_[first_of(at.op) + static_cast<std::size_t>(at.parameter)], chunk, /*apart=*/false);
        close(/*tied=*/true);
      }
    }
    return std::move(result_);
  }

 private:
  static bool is_in(const LayerRange& range, int op) { return op >= range.begin && op < range.end; }

  bool is_local(int op) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [op](const LayerRange& range) { return is_in(range, op); });
  }

  // Index of the first parameter of the operator, or of those behind it.
  std::size_t first_of(int op) const {
    const auto at = std::partition_point(held_.begin(), held_.end(),
                                         [op](const HeldParameter& held) { return held.at.op < op; });
    return static_cast<std::size_t>(at - held_.begin());
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
    if (held && used_elsewhere) shared_.push_back(place);
  }

  bool has_place_elsewhere(const ParameterAt& at) const {
    return std::find(shared_.begin(), shared_.end(), at) != shared_.end() ||
           std::any_of(result_.aliases.begin(), result_.aliases.end(),
                       [&](const auto& alias) { return alias.first == at; });
  }

  // Returns whether there are parameters of the other kind.
  bool lay_out_chunk(int chunk, bool apart) {
    const LayerRange range = ranges_[static_cast<std::size_t>(chunk)];
    const bool by_layer = plan_.choices.zero == 3;  // FSDP's unit: what is gathered together is used together
    const bool by_tensor = by_layer && plan_.job->runtime.gathers_by_tensor;
    const double limit = by_layer ? 0 : plan_.bucket_bytes();
    bool others = false;
    const std::size_t begin = first_of(range.begin);
    for (std::size_t end = first_of(range.end); end > begin;) {
      std::size_t first = end - 1;  // of the operator's parameters
      while (first > begin && held_[first - 1].at.op == held_[end - 1].at.op) --first;
      if (by_layer && end < held_.size() && held_[end].layer != held_[first].layer) close(false);
      for (std::size_t i = first; i < end; ++i) {
        const HeldParameter& held = held_[i];
        others = others || held.apart != apart;
        if (held.apart != apart || has_place_elsewhere(held.at)) continue;
        if (limit > 0 && !is_empty() &&
            static_cast<double>(bucket_.elements + held.elements) * element_bytes_ > limit)
          close(false);
        if (by_tensor && held.elements >= kOwnTensor && bucket_.elements >= kOwnTensor) close(false);
        append(held, chunk, apart);
      }
      end = first;
    }
    close(false);
    return others;
  }

  bool is_empty() const { return bucket_.begin == static_cast<int>(result_.parameters.size()); }

  void append(const HeldParameter& held, int chunk, bool apart) {
    bucket_.chunk = chunk;
    bucket_.apart = apart;
    result_.parameters.push_back({held.at.op, held.at.parameter, bucket_.elements, held.elements});
    result_.partial.push_back(!apart && held.partial ? 1 : 0);
    bucket_.elements += held.elements;
  }

  void close(bool tied) {
    if (is_empty()) return;
    bucket_.end = static_cast<int>(result_.parameters.size());
    bucket_.tied = tied;
    result_.buckets.push_back(bucket_);
    bucket_ = {};
    bucket_.begin = result_.buckets.back().end;
  }

  const Plan& plan_;
  const std::vector<HeldParameter>& held_;
  double element_bytes_;
  std::vector<LayerRange> ranges_;
  std::vector<ParameterAt> shared_;
  LaidBucket bucket_;  // the open one
  BucketLayout result_;
};

}  // namespace

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

std::vector<HeldParameter> held_parameters(const Plan& plan) {
  const Workload& workload = plan.job->workload;
  const Shard shard = shard_of(plan);
  const bool experts_apart = plan.choices.ep > 1 || shard.sequence_parallel;
  std::vector<HeldParameter> all;
  for (std::size_t i = 0; i < workload.operators.size(); ++i) {
    const Operator& op = workload.operators[i];
    for (std::size_t p = 0; p < op.parameters.size(); ++p) {
      const ParameterTensor& tensor = op.parameters[p];
      HeldParameter held{{static_cast<int>(i), static_cast<int>(p)}, op.layer, 0, false, false};
      held.elements = local_elements(tensor, shard);
      held.partial = gradient_is_partial(op, tensor, shard);
      // Where experts are on every rank and see what the rest of the layer sees, they are parameters like any
      // other. What tensor ranks of a general graph hold whole is reduced over them too: each saw samples of
      // its own.
      held.apart = workload.transformer ? tensor.expert && experts_apart : held.partial;
      all.push_back(held);
    }
  }
  return all;
}

BucketLayout bucket_layout(const Plan& plan, int stage, const TiedTensors& ties,
                           const std::vector<HeldParameter>& held) {
  return Layout(plan, stage, held).run(ties);
}

GroupKind bucket_group(const Choices& choices, bool apart) {
  if (apart) return GroupKind::expert_data;
  return choices.hybrid() ? GroupKind::shard : GroupKind::data;
}

}  // namespace orrery
