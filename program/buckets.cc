#include "program/buckets.h"

#include <algorithm>

#include "program/operator_shard.h"

namespace orrery {
namespace {

class Layout {
 public:
  Layout(const Plan& plan, int stage, const TiedTensors& ties)
      : plan_(plan), shard_(shard_of(plan)), element_bytes_(bytes_of(plan.gradient_type())) {
    for (int chunk = 0; chunk < plan.choices.interleave; ++chunk)
      ranges_.push_back(operators_of(plan, stage, chunk));
    for (const auto& [name, tie] : ties) resolve(tie);
  }

  BucketLayout run() {
    for (int chunk = plan_.choices.interleave - 1; chunk >= 0; --chunk) {
      lay_out_chunk(chunk, /*apart=*/false);
      if (may_be_apart()) lay_out_chunk(chunk, /*apart=*/true);
      for (const ParameterAt& at : shared_) {
        if (!is_in(ranges_[static_cast<std::size_t>(chunk)], at.op)) continue;
        append(at, chunk);
        close(/*tied=*/true);
      }
    }
    return std::move(result_);
  }

 private:
  const Operator& op(int index) const {
    return plan_.job->workload.operators[static_cast<std::size_t>(index)];
  }

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
    if (held && used_elsewhere) shared_.push_back(place);
  }

  bool has_place_elsewhere(const ParameterAt& at) const {
    return std::find(shared_.begin(), shared_.end(), at) != shared_.end() ||
           std::any_of(result_.aliases.begin(), result_.aliases.end(),
                       [&](const auto& alias) { return alias.first == at; });
  }

  // Where experts are on every rank and see what the rest of the layer sees, they are parameters like any
  // other. What tensor ranks of a general graph hold whole is reduced over them too: each saw samples of its
  // own.
  bool may_be_apart() const {
    return plan_.choices.ep > 1 || shard_.sequence_parallel ||
           (!plan_.job->workload.transformer && shard_.tp > 1);
  }
  bool is_apart(const Operator& op, const ParameterTensor& tensor) const {
    if (!plan_.job->workload.transformer) return internal::gradient_is_partial(op, tensor, shard_);
    return tensor.expert && (plan_.choices.ep > 1 || shard_.sequence_parallel);
  }

  void lay_out_chunk(int chunk, bool apart) {
    const LayerRange range = ranges_[static_cast<std::size_t>(chunk)];
    const bool by_layer = plan_.choices.zero == 3;  // FSDP's unit: what is gathered together is used together
    const double limit = by_layer ? 0 : plan_.bucket_bytes();
    for (int i = range.end - 1; i >= range.begin; --i) {
      if (by_layer && i + 1 < range.end && op(i + 1).layer != op(i).layer) close(false);
      for (std::size_t p = 0; p < op(i).parameters.size(); ++p) {
        const ParameterAt at{i, static_cast<int>(p)};
        if (is_apart(op(i), op(i).parameters[p]) != apart || has_place_elsewhere(at)) continue;
        const auto elements = internal::local_elements(op(i).parameters[p], shard_);
        if (limit > 0 && !bucket_.parameters.empty() &&
            static_cast<double>(bucket_.elements + elements) * element_bytes_ > limit)
          close(false);
        bucket_.apart = apart;
        append(at, chunk);
      }
    }
    close(false);
  }

  void append(const ParameterAt& at, int chunk) {
    const ParameterTensor& tensor = op(at.op).parameters[static_cast<std::size_t>(at.parameter)];
    const std::int64_t elements = internal::local_elements(tensor, shard_);
    bucket_.chunk = chunk;
    bucket_.parameters.push_back({at.op, at.parameter, bucket_.elements, elements});
    if (!bucket_.apart && internal::gradient_is_partial(op(at.op), tensor, shard_))
      bucket_.partial.push_back(bucket_.parameters.back());
    bucket_.elements += elements;
  }

  void close(bool tied) {
    if (bucket_.parameters.empty()) return;
    bucket_.tied = tied;
    result_.buckets.push_back(std::move(bucket_));
    bucket_ = {};
  }

  const Plan& plan_;
  Shard shard_;
  double element_bytes_;
  std::vector<LayerRange> ranges_;
  std::vector<ParameterAt> shared_;
  LaidBucket bucket_;
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

BucketLayout bucket_layout(const Plan& plan, int stage, const TiedTensors& ties) {
  return Layout(plan, stage, ties).run();
}

GroupKind bucket_group(const Choices& choices, bool apart) {
  if (apart) return GroupKind::expert_data;
  return choices.hybrid() ? GroupKind::shard : GroupKind::data;
}

}  // namespace orrery
