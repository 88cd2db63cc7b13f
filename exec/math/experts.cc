#include "exec/math/experts.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "exec/communicators/requests.h"
#include "program/operator_shard.h"

namespace orrery::exec {
namespace {

constexpr std::size_t kMostNoted = 65536;

}  // namespace

Experts::Experts(const FormParts& parts)
    : operators_(parts.plan.job->workload.operators),
      model_(*parts.plan.job->workload.transformer),
      layers_(parts.layers),
      parameters_(parts.parameters),
      device_(parts.device),
      values_(parts.values),
      pool_(parts.device),
      form_(parts.layers.stream_form()),
      rows_(parts.layers.rows_of(form_)),
      hidden_(model_.hidden),
      shard_(shard_of(parts.plan)),
      ep_(parts.plan.choices.ep),
      etp_(parts.plan.choices.etp) {
  const Plan& plan = parts.plan;
  const MixtureOfExperts& moe = *model_.moe;
  if (plan.choices.capacity_factor > 0)
    capacity_ = static_cast<std::int64_t>(std::ceil(
        plan.choices.capacity_factor * static_cast<double>(rows_ * moe.experts_per_token) / moe.experts));
  balance_ = moe.auxiliary_loss / (static_cast<double>(plan.job->training.global_batch) *
                                   static_cast<double>(plan.job->training.seq_len));
  values_.set_pool(&pool_);
}

bool Experts::computes(int index) const {
  switch (op(index).kind) {
    case OperatorKind::router:
    case OperatorKind::dispatch:
    case OperatorKind::expert_linear:
    case OperatorKind::combine:
      return true;
    case OperatorKind::activation:
      return op(index).active_experts > 0;
    default:
      return false;
  }
}

int Experts::router_of(int index) const {
  if (op(index).kind == OperatorKind::combine) return op(index).inputs[1];
  while (op(index).kind != OperatorKind::router) --index;
  return index;
}

Experts::Routed* Experts::routed_of(int index, int micro_batch) {
  auto& routed = routings_[{router_of(index), micro_batch}];
  if (routed == nullptr) routed = std::make_unique<Routed>(device_);
  return routed.get();
}

std::int64_t Experts::columns_of(int index) const {
  return local_columns(op(index), shard_) / op(index).active_experts;
}

void Experts::forward(const Instruction& instruction, int index, std::vector<Step>& steps) {
  const int micro_batch = instruction.micro_batch;
  switch (op(index).kind) {
    case OperatorKind::router:
      return router_forward(index, micro_batch, steps);
    case OperatorKind::dispatch:
      return dispatch_forward(index, micro_batch, steps);
    case OperatorKind::expert_linear:
      return products_forward(index, micro_batch, steps);
    case OperatorKind::activation:
      return activation_forward(index, micro_batch, steps);
    default:
      return combine_forward(index, micro_batch, steps);
  }
}

void Experts::backward(const Instruction& instruction, int index, std::vector<Step>& steps) {
  const int micro_batch = instruction.micro_batch;
  const bool input = wants_input_gradient(instruction);
  const bool weight = wants_weight_gradient(instruction);
  switch (op(index).kind) {
    case OperatorKind::router:
      return router_backward(index, micro_batch, input, weight, steps);
    case OperatorKind::expert_linear:
      return products_backward(index, micro_batch, input, weight, steps);
    case OperatorKind::dispatch:
      if (input) dispatch_backward(index, micro_batch, steps);
      return;
    case OperatorKind::activation:
      if (input) activation_backward(index, micro_batch, steps);
      return;
    default:
      if (input) combine_backward(index, micro_batch, steps);
  }
}

// ---- Router ----

// The host reads scores and the gradients of weights, and so they are fp32.

void Experts::router_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const HeldTensor* weight = parameters_.find(index, 0);
  const auto x = values_.use(stream(TensorKind::activation, op(index).inputs[0], micro_batch));
  const std::int64_t experts = model_.moe->experts;
  const auto scores =
      values_.define_as(DType::fp32, stream(TensorKind::activation, index, micro_batch), rows_ * experts);
  const Layers::Place w = layers_.weight_of(*weight);
  Routed* routed = routed_of(index, micro_batch);
  steps.push_back([=, this] {
    device_.gemm(false, true, rows_, experts, hidden_, 1, values_.numbers(x), hidden_, layers_.at(w), hidden_,
                 0, values_.numbers(scores), experts);
    Routing* routing = &routed->host;
    routing->scaled = model_.moe->scaled_weights;
    std::vector<float> copied;
    route(on_host(values_.floats(scores), rows_ * experts, &copied), rows_, static_cast<int>(experts),
          model_.moe->experts_per_token, capacity_, routing);
    routed->slot.put(routing->slot);
    routed->weight.put(routing->weight);
    routed->token_of_slot.put(routing->token_of_slot);
    routed->weight_of_slot.put(routing->weight_of_slot);
    if (ep_ > 1) return;  // laid out when the counts have come
    routing->received = routing->sent;
    lay_out_received(1, routing);
  });
}

void Experts::router_backward(int index, int micro_batch, bool want_input, bool want_weight,
                              std::vector<Step>& steps) {
  const HeldTensor* weight = parameters_.find(index, 0);
  const std::int64_t experts = model_.moe->experts;
  const Key scores_key = stream(TensorKind::saved, index, micro_batch);
  if (want_input) {
    const Key weights_key = stream(TensorKind::activation_gradient, index, micro_batch);
    const auto dweights = values_.use(weights_key);
    values_.forget(weights_key);
    const auto dscores = values_.define(scores_key, rows_ * experts);
    const auto dx = values_.change(stream(TensorKind::activation_gradient, op(index).inputs[0], micro_batch));
    const Layers::Place w = layers_.weight_of(*weight);
    const Routing* routing = &routed_of(index, micro_batch)->host;
    steps.push_back([=, this] {
      std::vector<float> copied;
      const float* of_weights =
          on_host(values_.floats(dweights), rows_ * static_cast<std::int64_t>(model_.moe->experts_per_token),
                  &copied);
      std::vector<float> computed(device_.host_memory() ? 0 : static_cast<std::size_t>(rows_ * experts));
      float* of_scores = device_.host_memory() ? values_.floats(dscores) : computed.data();
      route_backward(*routing, of_weights, balance_ * static_cast<double>(layers_.loss_factor()), of_scores);
      if (!computed.empty())
        device_.copy_to_device(values_.at(dscores), of_scores, computed.size() * sizeof(float));
      device_.gemm(false, false, rows_, hidden_, experts, 1, values_.numbers(dscores), experts, layers_.at(w),
                   hidden_, 1, values_.numbers(dx), hidden_);
    });
  }
  if (want_weight) {
    const auto x = values_.use(stream(TensorKind::activation, op(index).inputs[0], micro_batch));
    const auto dscores = values_.use(scores_key);
    const Layers::Place dw = layers_.gradient_of(*weight, micro_batch, steps);
    steps.push_back([=, this] {
      device_.gemm(true, false, experts, hidden_, rows_, 1, values_.numbers(dscores), experts,
                   values_.numbers(x), hidden_, 1, layers_.ready_to_add(dw), hidden_);
    });
  }
}

const float* Experts::on_host(const float* data, std::int64_t count, std::vector<float>* copy) const {
  if (device_.host_memory()) return data;
  copy->resize(static_cast<std::size_t>(count));
  device_.copy_to_host(copy->data(), data, copy->size() * sizeof(float));
  return copy->data();
}

// ---- Tokens to their experts and back ----

void Experts::dispatch_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto x = values_.use(stream(TensorKind::activation, op(index).inputs[0], micro_batch));
  const auto y = values_.define_dynamic(activation(index, micro_batch));
  const Routed* routed = routed_of(index, micro_batch);
  steps.push_back([=, this] {
    const auto rows = static_cast<std::int64_t>(routed->host.token_of_slot.size());
    device_.gather_rows(values_.numbers(x), routed->token_of_slot.at<std::int32_t>(), nullptr,
                        values_.provide(y, rows * hidden_), rows, hidden_);
  });
}

void Experts::dispatch_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto dy = values_.use(gradient(index, micro_batch));
  values_.forget(gradient(index, micro_batch));
  const Key into = stream(TensorKind::activation_gradient, op(index).inputs[0], micro_batch);
  const bool accumulate = values_.has(into);  // shared experts read the same norm
  const auto dx = accumulate ? values_.change(into) : values_.define(into, rows_ * hidden_);
  const Routed* routed = routed_of(index, micro_batch);
  steps.push_back([=, this] {
    device_.sum_rows(values_.numbers(dy), routed->slot.at<std::int32_t>(), nullptr, values_.numbers(dx),
                     rows_, routed->host.per_token, hidden_, accumulate);
  });
}

void Experts::combine_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto y = values_.use(activation(op(index).inputs[0], micro_batch));
  const auto out = values_.define(stream(TensorKind::activation, index, micro_batch), rows_ * hidden_);
  const Routed* routed = routed_of(index, micro_batch);
  steps.push_back([=, this] {
    device_.sum_rows(values_.numbers(y), routed->slot.at<std::int32_t>(), routed->weight.at<float>(),
                     values_.numbers(out), rows_, routed->host.per_token, hidden_, /*accumulate=*/false);
  });
}

void Experts::combine_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const int experts = op(index).inputs[0];
  const auto y = values_.use(activation(experts, micro_batch));
  const Key out_key = stream(TensorKind::activation_gradient, index, micro_batch);
  const auto dout = values_.use(out_key);
  values_.forget(out_key);
  const auto dweights = values_.define_as(
      DType::fp32, stream(TensorKind::activation_gradient, op(index).inputs[1], micro_batch),
      rows_ * model_.moe->experts_per_token);
  const auto dy = values_.define_dynamic(gradient(experts, micro_batch));
  const Routed* routed = routed_of(index, micro_batch);
  steps.push_back([=, this] {
    const auto rows = static_cast<std::int64_t>(routed->host.token_of_slot.size());
    device_.dot_rows(values_.numbers(dout), values_.numbers(y), routed->slot.at<std::int32_t>(),
                     values_.floats(dweights), rows_, routed->host.per_token, hidden_);
    device_.gather_rows(values_.numbers(dout), routed->token_of_slot.at<std::int32_t>(),
                        routed->weight_of_slot.at<float>(), values_.provide(dy, rows * hidden_), rows,
                        hidden_);
  });
}

// ---- The experts ----

// Weights stand out x in, expert after expert; several tensors (gate, up) stand side by side in the output.
void Experts::products_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto x = values_.use(activation(op(index).inputs[0], micro_batch));
  const auto y = values_.define_dynamic(activation(index, micro_batch));
  const Routing* routing = &routed_of(index, micro_batch)->host;
  const std::int64_t columns = columns_of(index);
  std::vector<std::pair<const HeldTensor*, Layers::Place>> weights;
  for (std::size_t p = 0; p < op(index).parameters.size(); ++p) {
    const HeldTensor* held = parameters_.find(index, static_cast<int>(p));
    weights.emplace_back(held, layers_.weight_of(*held));
  }
  steps.push_back([=, this] {
    const Numbers out = values_.provide(y, routing->received_rows * columns);
    for (const ExpertRows& part : routing->segments) {
      std::int64_t column = 0;
      for (const auto& [held, place] : weights) {
        const std::int64_t n = held->shape[1];
        const std::int64_t k = held->shape[2];
        device_.gemm(false, true, part.rows, n, k, 1, values_.numbers(x) + part.begin * k, k,
                     layers_.at(place) + part.expert * n * k, k, 0, out + part.begin * columns + column,
                     columns);
        column += n;
      }
    }
  });
}

void Experts::products_backward(int index, int micro_batch, bool want_input, bool want_weight,
                                std::vector<Step>& steps) {
  const auto dy = values_.use(gradient(index, micro_batch));
  const Routing* routing = &routed_of(index, micro_batch)->host;
  const std::int64_t columns = columns_of(index);
  for (std::size_t p = 0; want_weight && p < op(index).parameters.size(); ++p) {
    const HeldTensor* held = parameters_.find(index, static_cast<int>(p));
    const auto x = values_.use(activation(op(index).inputs[0], micro_batch));
    const Layers::Place dw = layers_.gradient_of(*held, micro_batch, steps);
    const std::int64_t n = held->shape[1];
    const std::int64_t k = held->shape[2];
    const std::int64_t column = static_cast<std::int64_t>(p) * n;
    steps.push_back([=, this] {
      // The first rows of an expert set its gradient, others add to it; who has none has zeros.
      float* into = layers_.at(dw);
      std::vector<bool> set(static_cast<std::size_t>(held->shape[0]), !dw.first);
      for (const ExpertRows& part : routing->segments) {
        if (part.rows == 0) continue;
        const auto expert = static_cast<std::size_t>(part.expert);
        device_.gemm(true, false, n, k, part.rows, 1, values_.numbers(dy) + part.begin * columns + column,
                     columns, values_.numbers(x) + part.begin * k, k, set[expert] ? 1.0F : 0.0F,
                     into + part.expert * n * k, k);
        set[expert] = true;
      }
      for (std::size_t expert = 0; expert < set.size(); ++expert)
        if (!set[expert])
          device_.fill(into + static_cast<std::int64_t>(expert) * n * k, static_cast<std::size_t>(n * k), 0);
    });
  }
  if (!want_input) return;
  const auto dx = values_.define_dynamic(gradient(op(index).inputs[0], micro_batch));
  std::vector<std::pair<const HeldTensor*, Layers::Place>> weights;
  for (std::size_t p = 0; p < op(index).parameters.size(); ++p) {
    const HeldTensor* held = parameters_.find(index, static_cast<int>(p));
    weights.emplace_back(held, layers_.weight_of(*held));
  }
  steps.push_back([=, this] {
    const std::int64_t k = weights.front().first->shape[2];
    const Numbers into = values_.provide(dx, routing->received_rows * k);
    for (const ExpertRows& part : routing->segments) {
      std::int64_t column = 0;
      for (const auto& [held, place] : weights) {
        const std::int64_t n = held->shape[1];
        device_.gemm(false, false, part.rows, k, n, 1, values_.numbers(dy) + part.begin * columns + column,
                     columns, layers_.at(place) + part.expert * n * k, k, column == 0 ? 0.0F : 1.0F,
                     into + part.begin * k, k);
        column += n;
      }
    }
  });
}

void Experts::activation_forward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto x = values_.use(activation(op(index).inputs[0], micro_batch));
  const auto y = values_.define_dynamic(activation(index, micro_batch));
  const Routing* routing = &routed_of(index, micro_batch)->host;
  const std::int64_t columns = columns_of(index);
  steps.push_back([=, this] {
    device_.activation_forward(model_.activation, model_.gated_ffn, values_.numbers(x),
                               values_.provide(y, routing->received_rows * columns), routing->received_rows,
                               columns);
  });
}

void Experts::activation_backward(int index, int micro_batch, std::vector<Step>& steps) {
  const auto x = values_.use(activation(op(index).inputs[0], micro_batch));
  const auto dy = values_.use(gradient(index, micro_batch));
  const auto dx = values_.define_dynamic(gradient(op(index).inputs[0], micro_batch));
  values_.forget(gradient(index, micro_batch));
  const Routing* routing = &routed_of(index, micro_batch)->host;
  const std::int64_t columns = columns_of(index);
  steps.push_back([=, this] {
    device_.activation_backward(
        model_.activation, model_.gated_ffn, values_.numbers(x), values_.numbers(dy),
        values_.provide(dx, routing->received_rows * columns * (model_.gated_ffn ? 2 : 1)),
        routing->received_rows, columns);
  });
}

// ---- Between ranks ----

Experts::Start Experts::communicate(const Instruction& instruction, Communicator& communicator,
                                    std::vector<Values::Id>& uses) {
  const TensorRef tensor = instruction.writes.front();
  const Key key{tensor.kind, tensor.index, tensor.micro_batch, Form::whole};
  Routed* routed = routed_of(tensor.index, tensor.micro_batch);
  if (instruction.collective == CollectiveKind::all_reduce) {
    const auto value = values_.change(key);
    uses.push_back(value);
    return [=, this, &communicator] {
      const auto count = static_cast<std::size_t>(routed->host.received_rows * hidden_);
      return communicator.all_reduce(values_.at(value), values_.at(value), count, values_.type(value),
                                     Reduction::sum);
    };
  }
  const auto from = values_.use(key);
  const auto to = values_.define_dynamic(key);
  uses.insert(uses.end(), {from, to});
  const bool forward = tensor.kind == TensorKind::activation;
  const bool dispatch = op(tensor.index).kind == OperatorKind::dispatch;
  const bool counts = forward && dispatch;  // nobody knows yet how many rows there are
  switch (instruction.collective) {
    case CollectiveKind::all_to_all: {
      const bool to_experts = forward == dispatch;
      const Start move = [=, this, &communicator] {
        return all_to_all(*routed, from, to, to_experts, communicator);
      };
      return counts ? count_received(routed, move, communicator) : move;
    }
    case CollectiveKind::all_gather: {
      const Start move = [=, this, &communicator] { return all_gather(*routed, from, to, communicator); };
      return counts ? count_gathered(routed, move, communicator) : move;
    }
    case CollectiveKind::reduce_scatter:
      return [=, this, &communicator] {
        const std::int64_t rows = routed->host.member_rows;
        return communicator.reduce_scatter(values_.at(from), values_.provide(to, rows * hidden_).data(),
                                           static_cast<std::size_t>(rows * hidden_), values_.type(from),
                                           Reduction::sum);
      };
    default:
      throw InternalError("experts do not " + std::string(name_of(instruction.collective)));
  }
}

std::unique_ptr<Request> Experts::all_to_all(const Routed& routed, Values::Id from, Values::Id to,
                                             bool to_experts, Communicator& communicator) {
  const auto members = static_cast<std::size_t>(ep_);
  const auto local = static_cast<std::size_t>(local_experts(model_.moe->experts, shard_));
  const auto width = static_cast<std::size_t>(hidden_);
  std::vector<std::size_t> sent(members);
  std::vector<std::size_t> received(members);
  for (std::size_t m = 0; m < members; ++m)
    for (std::size_t e = m * local; e < (m + 1) * local; ++e) {
      sent[m] += static_cast<std::size_t>(routed.host.sent[e]) * width;
      received[m] += static_cast<std::size_t>(routed.host.received[e]) * width;
    }
  if (!to_experts) sent.swap(received);
  const std::size_t total = std::accumulate(received.begin(), received.end(), std::size_t{0});
  return communicator.all_to_all(values_.at(from), sent,
                                 values_.provide(to, static_cast<std::int64_t>(total)).data(), received,
                                 values_.type(from));
}

std::unique_ptr<Request> Experts::all_gather(const Routed& routed, Values::Id from, Values::Id to,
                                             Communicator& communicator) {
  const Routing& routing = routed.host;
  const auto own = std::accumulate(routing.received.begin(), routing.received.end(), std::int64_t{0});
  const std::int64_t part = routing.member_rows * hidden_;
  const Numbers whole = values_.provide(to, routing.received_rows * hidden_);
  const Numbers place = whole + communicator.rank() * part;
  device_.copy(place.data(), values_.at(from), place.bytes(own * hidden_));
  return communicator.all_gather(place.data(), whole.data(), static_cast<std::size_t>(part), whole.type());
}

Experts::Start Experts::count_received(Routed* routed, const Start& move, Communicator& communicator) {
  const auto lay_out = [=, this] {
    lay_out_received(ep_, &routed->host);
    if (capacity_ == 0 && routed_.size() < kMostNoted) routed_.push_back(rows_of(routed->host));
    return move();
  };
  const auto experts = static_cast<std::size_t>(model_.moe->experts);
  if (capacity_ > 0)
    return [=, this] {
      routed->host.received.assign(experts, capacity_);
      return lay_out();
    };
  const auto send = [=, this, &communicator](const std::int64_t* sent, std::int64_t* received) {
    const std::vector<std::size_t> each(static_cast<std::size_t>(ep_),
                                        static_cast<std::size_t>(local_experts(model_.moe->experts, shard_)));
    return communicator.all_to_all(sent, each, received, each, DType::int64);
  };
  return [=, this] {
    routed->host.received.resize(experts);
    return exchange_counts(routed, routed->host.sent, &routed->host.received, send, lay_out);
  };
}

Experts::Start Experts::count_gathered(Routed* routed, const Start& move, Communicator& communicator) {
  const auto lay_out = [=, this] {
    lay_out_gathered(routed->gathered, etp_, ep_, &routed->host);
    return move();
  };
  const auto experts = static_cast<std::size_t>(model_.moe->experts);
  const std::size_t all = experts * static_cast<std::size_t>(etp_);
  if (capacity_ > 0)
    return [=, this] {
      routed->gathered.assign(all, capacity_);
      return lay_out();
    };
  const auto send = [=, &communicator](const std::int64_t* sent, std::int64_t* received) {
    return communicator.all_gather(sent, received, experts, DType::int64);
  };
  return [=, this] {
    routed->gathered.resize(all);
    return exchange_counts(routed, routed->host.received, &routed->gathered, send, lay_out);
  };
}

std::unique_ptr<Request> Experts::exchange_counts(Routed* routed, const std::vector<std::int64_t>& sent,
                                                  std::vector<std::int64_t>* received, const SendCounts& send,
                                                  const Start& then) {
  const std::size_t out = sent.size() * sizeof(std::int64_t);
  const std::size_t in = received->size() * sizeof(std::int64_t);
  const std::int64_t* from = sent.data();
  std::int64_t* to = received->data();
  if (!device_.host_memory()) {
    auto* copy = static_cast<std::int64_t*>(routed->counts.reserve(out + in));
    device_.copy_to_device(copy, from, out);
    from = copy;
    to = copy + sent.size();
  }
  return std::make_unique<ChainRequest>(send(from, to), [=, this] {
    if (!device_.host_memory()) device_.copy_to_host(received->data(), to, in);
    return then();
  });
}

}  // namespace orrery::exec
