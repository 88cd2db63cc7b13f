// The interpreter's data parallelism: what becomes of gradients and parameters, bucket by bucket.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "exec/communicators/requests.h"
#include "exec/run/interpreter.h"
#include "program/operator_shard.h"

namespace orrery::exec {
namespace {

// Gradients are clipped to this global norm where the runtime profile clips (Megatron-LM's default).

}  // namespace

std::vector<Interpreter::Slice> Interpreter::replicated_slices() const {
  std::vector<Slice> slices;
  const Shard shares = shard_of(plan_);
  for (const HeldTensor& held : parameters_.held()) {
    const Operator& op = plan_.job->workload.operators[static_cast<std::size_t>(held.op)];
    if (!gradient_is_partial(op, *held.tensor, shares)) continue;
    const std::int64_t shard = parameters_.shard_begin(held.bucket);
    const std::int64_t begin = std::max(held.offset, shard);
    const std::int64_t end =
        std::min(held.offset + held.elements, shard + parameters_.shard_elements(held.bucket));
    if (begin < end)
      slices.push_back({parameters_.own_gradients(held.bucket) + (begin - shard), end - begin});
  }
  return slices;
}

void Interpreter::compile_bucket(const Instruction& instruction, int bucket, Compiled& compiled,
                                 std::vector<Values::Id>& uses) {
  Communicator* communicator = communicator_of(instruction);
  const bool weights = instruction.writes.front().kind == TensorKind::parameters;
  const auto elements = static_cast<std::size_t>(parameters_.elements(bucket));
  const auto part = static_cast<std::size_t>(parameters_.part_elements(bucket));
  float* own = weights ? parameters_.own_weights(bucket) : parameters_.own_part(bucket);
  // Hybrid sharding sums shards of different shard groups.
  const bool of_shards =
      program_.groups[static_cast<std::size_t>(instruction.group)].kind == GroupKind::replicate;
  check_elements(instruction, of_shards ? part : elements);
  switch (instruction.collective) {
    case CollectiveKind::all_reduce: {
      float* data = of_shards ? own : parameters_.gradients(bucket);
      const std::size_t count = of_shards ? part : elements;
      compiled.start = [=] {
        return communicator->all_reduce(data, data, count, DType::fp32, Reduction::sum);
      };
      return;
    }
    case CollectiveKind::reduce_scatter: {
      if (!parameters_.scatters_gradients(bucket)) {
        float* data = parameters_.gradients(bucket);
        compiled.start = [=] {
          return communicator->reduce_scatter(data, own, part, DType::fp32, Reduction::sum);
        };
        return;
      }
      // This micro-batch's gradients; their sum is added to the shard that is kept.
      Key key{TensorKind::gradients, bucket, instruction.micro_batch, Form::whole};
      for (const TensorRef& tensor : instruction.reads)
        if (tensor.kind == TensorKind::gradients && tensor.micro_batch >= 0)
          key.micro_batch = tensor.micro_batch;
      const Values::Id from = values_.use(key);
      values_.forget(key);
      key.form = Form::shard;
      const Values::Id sum = values_.define(key, parameters_.part_elements(bucket));
      uses.insert(uses.end(), {from, sum});
      const bool first = scattered_.insert(bucket).second;
      compiled.start = [=, this]() -> std::unique_ptr<Request> {
        auto request = communicator->reduce_scatter(values_.at(from), values_.at(sum), part, DType::fp32,
                                                    Reduction::sum);
        return std::make_unique<ThenRequest>(std::move(request), [=, this] {
          if (first)
            device_.copy(own, values_.at(sum), part * sizeof(float));
          else
            device_.add(own, values_.floats(sum), part);
        });
      };
      return;
    }
    default: {
      if (!weights) {  // summed in parts, and back to whole
        float* data = parameters_.gradients(bucket);
        compiled.start = [=] { return communicator->all_gather(own, data, part, DType::fp32); };
        return;
      }
      if (!parameters_.gathers_weights(bucket)) {
        float* data = parameters_.weights(bucket);
        compiled.start = [=] { return communicator->all_gather(own, data, part, DType::fp32); };
        return;
      }
      const Values::Id whole =
          values_.define({TensorKind::parameters, bucket, -1, Form::whole}, parameters_.elements(bucket));
      uses.push_back(whole);
      compiled.start = [=, this] {
        return communicator->all_gather(own, values_.at(whole), part, DType::fp32);
      };
      return;
    }
  }
}

// `pack` and `unpack` of gradients that travel compressed.
void Interpreter::compile_conversion(const Instruction& instruction, std::vector<Step>& steps) {
  const int bucket = instruction.op_begin;
  if (instruction.op == Op::pack) {
    const Values::Id into = values_.define_bytes({TensorKind::compressed, bucket, -1, Form::shard},
                                                 compressor_->payload_bytes(bucket));
    steps.push_back([=, this] { compressor_->pack(bucket, values_.at(into)); });
    return;
  }
  const Values::Id from = values_.use({TensorKind::compressed, bucket, -1, Form::whole});
  const int group = program_.buckets[static_cast<std::size_t>(bucket)].group;
  const auto members = static_cast<int>(program_.groups[static_cast<std::size_t>(group)].ranks.size());
  steps.push_back([=, this] { compressor_->unpack(bucket, values_.at(from), members); });
}

void Interpreter::compile_compressed(const Instruction& instruction, Compiled& compiled,
                                     std::vector<Values::Id>& uses) {
  Communicator* communicator = communicators_.at({instruction.group, instruction.stream}).get();
  const int bucket = instruction.writes.front().index;
  const std::size_t payload = compressor_->payload_bytes(bucket);
  const Values::Id from = values_.use({TensorKind::compressed, bucket, -1, Form::shard});
  const Key result{TensorKind::compressed, bucket, -1, Form::whole};
  const auto elements = static_cast<std::size_t>(parameters_.elements(bucket));
  const auto part = static_cast<std::size_t>(parameters_.shard_elements(bucket));
  Values::Id to = from;
  switch (instruction.collective) {
    case CollectiveKind::all_reduce:
      values_.alias(result, from);
      compiled.start = [=, this, type = instruction.dtype] {
        return communicator->all_reduce(values_.at(from), values_.at(from), elements, type, Reduction::sum);
      };
      break;
    case CollectiveKind::reduce_scatter:
      to = values_.define_bytes(result, payload / static_cast<std::size_t>(communicator->size()));
      compiled.start = [=, this, type = instruction.dtype] {
        return communicator->reduce_scatter(values_.at(from), values_.at(to), part, type, Reduction::sum);
      };
      break;
    default:
      to = values_.define_bytes(result, payload * static_cast<std::size_t>(communicator->size()));
      compiled.start = [=, this] {
        return communicator->all_gather(values_.at(from), values_.at(to), payload, DType::int8);
      };
      break;
  }
  const bool gathers = instruction.collective == CollectiveKind::all_gather;
  check_bytes(instruction,
              static_cast<double>(payload * (gathers ? static_cast<std::size_t>(communicator->size()) : 1)),
              instruction.bytes);
  uses.insert(uses.end(), {from, to});
}

void Interpreter::compile_bucket_collective(const Instruction& instruction, Compiled& compiled,
                                            std::vector<Values::Id>& uses) {
  Communicator* communicator = communicator_of(instruction);
  const TensorRef tensor = instruction.writes.front();
  const auto bucket_of = [&] {
    for (const TensorRef& ref : instruction.writes)
      if (ref.kind == TensorKind::gradients || ref.kind == TensorKind::parameters) return ref.index;
    throw InternalError("a reduction of gradients that names no bucket");
  };
  const auto allocate_scratch = [&](std::int64_t elements) {
    if (scratch_ == nullptr)
      scratch_ = static_cast<float*>(device_.allocate(static_cast<std::size_t>(elements) * sizeof(float)));
    return scratch_;
  };
  switch (tensor.kind) {
    case TensorKind::gradients:
    case TensorKind::tied_gradient:
    case TensorKind::parameters: {
      compile_bucket(instruction, bucket_of(), compiled, uses);
      return;
    }
    case TensorKind::replicated_gradient: {
      const std::vector<Slice> slices = replicated_slices();
      std::int64_t elements = 0;
      for (const Slice& slice : slices) elements += slice.elements;
      check_elements(instruction, static_cast<std::size_t>(elements));
      float* gathered = allocate_scratch(elements);
      const auto move = [this, slices, gathered](bool back) {
        float* at = gathered;
        for (const Slice& slice : slices) {
          const auto bytes = static_cast<std::size_t>(slice.elements) * sizeof(float);
          device_.copy(back ? slice.data : at, back ? at : slice.data, bytes);
          at += slice.elements;
        }
      };
      compiled.start = [=]() -> std::unique_ptr<Request> {
        move(false);
        auto request = communicator->all_reduce(gathered, gathered, static_cast<std::size_t>(elements),
                                                DType::fp32, Reduction::sum);
        return std::make_unique<ThenRequest>(std::move(request), [move] { move(true); });
      };
      return;
    }
    case TensorKind::gradient_norm: {
      float* squares = static_cast<float*>(device_.allocate(sizeof(float)));
      ORRERY_CHECK(norm_ == nullptr, "two gradient norms in one step");
      norm_ = squares;
      compiled.start = [=, this] {
        const auto own = static_cast<float>(owned_gradient_squares());
        device_.copy_to_device(squares, &own, sizeof(own));
        return communicator->all_reduce(squares, squares, 1, DType::fp32, Reduction::sum);
      };
      return;
    }
    default:
      throw InternalError("the executor does not communicate " + std::string(name_of(tensor.kind)));
  }
}

// Of the gradient's elements that no other rank counts.
double Interpreter::owned_gradient_squares() const {
  double sum = 0;
  for (const HeldTensor& held : parameters_.held()) {
    const Parameters::Part part = parameters_.answers_for(held);
    sum += device_.sum_of_squares(
        parameters_.own_gradients(held.bucket) + (part.begin - parameters_.shard_begin(held.bucket)),
        static_cast<std::size_t>(part.end - part.begin));
  }
  return sum;
}

void Interpreter::optimizer(int begin, int end) {
  float unscaled = 1;
  if (scaler_) {
    unscaled = 1 / scaler_->scale();
    const bool finite = gradients_are_finite();
    scaler_->update(finite);
    if (!finite) return;
  } else if (skips_ && !gradients_are_finite()) {
    return;
  }
  float scale = unscaled;
  if (plan_.job->runtime.clip_gradients) {
    float squares = 0;
    if (norm_ != nullptr)
      device_.copy_to_host(&squares, norm_, sizeof(squares));
    else
      squares = static_cast<float>(owned_gradient_squares());
    const double norm = std::sqrt(static_cast<double>(squares)) * static_cast<double>(unscaled);
    scale *= static_cast<float>(std::min(1.0, clip_norm_ / (norm + 1e-6)));
  }
  parameters_.update(begin, end, ++updates_, scale);
}

}  // namespace orrery::exec
