// Networks on images whose operators tensor ranks split: all samples' own features for own samples' all, and
// for gradients the other way.
#include "exec/communicators/requests.h"
#include "exec/run/interpreter.h"

namespace orrery::exec {

std::function<std::unique_ptr<Request>()> Interpreter::exchange_features(const TensorRef& tensor,
                                                                         Communicator& ranks,
                                                                         std::vector<Values::Id>& uses) {
  const auto key = [&](TensorKind kind, Form form) {
    return Key{kind, tensor.index, tensor.micro_batch, form};
  };
  const bool forward = tensor.kind == TensorKind::activation;
  const std::int64_t elements = math_->elements(tensor.index, Form::features);
  const std::int64_t n = ranks.size();
  const std::int64_t rows = math_->rows() * math_->rows_of_features(tensor.index);  // of own samples
  const std::int64_t columns = elements / rows;
  const std::int64_t part = columns / n;
  const Values::Id from = values_.use(key(tensor.kind, forward ? Form::features : Form::shard));
  // By rank: its own features of our samples, or ours of its samples.
  const Values::Id blocks = values_.define_unnamed(values_.type(from), elements);
  const Values::Id to = values_.define(key(tensor.kind, forward ? Form::shard : Form::features), elements);
  uses.insert(uses.end(), {from, blocks, to});
  const std::vector<std::size_t> counts(static_cast<std::size_t>(n), static_cast<std::size_t>(rows * part));
  if (forward)
    return [=, this, &ranks]() -> std::unique_ptr<Request> {
      auto moved = ranks.all_to_all(values_.at(from), counts, values_.at(blocks), counts, values_.type(from));
      return std::make_unique<ThenRequest>(std::move(moved), [=, this] {
        for (std::int64_t r = 0; r < n; ++r)
          device_.copy_matrix(values_.numbers(to) + r * part, columns,
                              values_.numbers(blocks) + r * rows * part, part, rows, part);
      });
    };
  return [=, this, &ranks] {
    for (std::int64_t r = 0; r < n; ++r)
      device_.copy_matrix(values_.numbers(blocks) + r * rows * part, part, values_.numbers(from) + r * part,
                          columns, rows, part);
    return ranks.all_to_all(values_.at(blocks), counts, values_.at(to), counts, values_.type(from));
  };
}

}  // namespace orrery::exec
