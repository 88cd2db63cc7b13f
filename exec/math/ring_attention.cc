#include "exec/math/ring_attention.h"

#include "base/error.h"
#include "exec/communicators/requests.h"

namespace orrery::exec {

RingAttention::RingAttention(const FormParts& parts)
    : operators_(parts.plan.job->workload.operators),
      layers_(parts.layers),
      device_(parts.device),
      values_(parts.values),
      size_(parts.layers.attention_size()),
      cp_(parts.plan.choices.cp),
      position_(parts.program.at.cp) {}

bool RingAttention::computes(int op) const {
  return operators_[static_cast<std::size_t>(op)].kind == OperatorKind::attention;
}

int RingAttention::input(int op) const {
  return operators_[static_cast<std::size_t>(op)].inputs.front();
}

// Of the sequence's 2 cp parts, position p holds p and 2 cp - 1 - p. Under a causal mask keys of an earlier
// position's first part are before all of this one's queries and its second part after them; all keys of a
// later position are between this one's two parts of queries.
AttentionBlock RingAttention::block_of(int block) const {
  const int other = (position_ - block + cp_) % cp_;
  AttentionBlock result{size_, 0, size_.seq};
  if (!size_.causal) return result;
  if (other < position_)
    result.keys = size_.seq / 2;
  else
    result.query_begin = size_.seq / 2;
  return result;
}

AttentionSize RingAttention::size_of(int op, int micro_batch, int block) const {
  AttentionSize size = size_;
  size.dropout = layers_.attention_dropout(op, micro_batch, (position_ - block + cp_) % cp_);
  return size;
}

std::int64_t RingAttention::message_elements() const {
  return layers_.rows() * 2 * size_.kv_heads * size_.head_dim;
}

void RingAttention::extract(Numbers message, ConstNumbers fused) const {
  const std::int64_t columns = static_cast<std::int64_t>(size_.kv_heads) * size_.head_dim;
  const std::int64_t stride = size_.qkv_columns();
  const ConstNumbers keys = fused + static_cast<std::int64_t>(size_.heads) * size_.head_dim;
  device_.copy_matrix(message, columns, keys, stride, layers_.rows(), columns);
  device_.copy_matrix(message + message_elements() / 2, columns, keys + columns, stride, layers_.rows(),
                      columns);
}

void RingAttention::insert(ConstNumbers message, Numbers fused) const {
  const std::int64_t columns = static_cast<std::int64_t>(size_.kv_heads) * size_.head_dim;
  const std::int64_t stride = size_.qkv_columns();
  const Numbers keys = fused + static_cast<std::int64_t>(size_.heads) * size_.head_dim;
  device_.copy_matrix(keys, stride, message, columns, layers_.rows(), columns);
  device_.copy_matrix(keys + columns, stride, message + message_elements() / 2, columns, layers_.rows(),
                      columns);
}

void RingAttention::forward(const Instruction& instruction, int op, std::vector<Step>& steps) {
  const int micro_batch = instruction.micro_batch;
  const int block = instruction.block;
  const auto qkv = values_.use(key(TensorKind::activation, input(op), micro_batch, -1));
  const Key out_key = key(TensorKind::activation, op, micro_batch, -1);
  const Key saved_key = key(TensorKind::saved, op, micro_batch, -1);
  if (block == 0) {
    const std::int64_t heads = layers_.rows() * size_.heads;
    const auto out = values_.define(out_key, heads * size_.head_dim);
    const auto saved = values_.define(saved_key, heads);
    steps.push_back([=, this] {
      device_.attention_forward(size_of(op, micro_batch, 0), values_.numbers(qkv), values_.numbers(out),
                                values_.floats(saved));
    });
    return;
  }
  const auto out = values_.change(out_key);
  const auto saved = values_.change(saved_key);
  const auto message = values_.use(key(TensorKind::key_value, op, micro_batch, block));
  steps.push_back([=, this, part = block_of(block)]() mutable {
    part.size = size_of(op, micro_batch, block);
    device_.attention_block_forward(part, values_.numbers(qkv), values_.numbers(message),
                                    values_part(message), values_.numbers(out), values_.floats(saved));
  });
}

void RingAttention::backward(const Instruction& instruction, int op, std::vector<Step>& steps) {
  if (!wants_input_gradient(instruction)) return;  // there are no weights
  const int micro_batch = instruction.micro_batch;
  const int block = instruction.block;
  const auto qkv = values_.use(key(TensorKind::activation, input(op), micro_batch, -1));
  const auto out = values_.use(key(TensorKind::activation, op, micro_batch, -1));
  const auto saved = values_.use(key(TensorKind::saved, op, micro_batch, -1));
  const Key dout_key = key(TensorKind::activation_gradient, op, micro_batch, -1);
  const auto dout = values_.use(dout_key);
  const Key dqkv_key = key(TensorKind::activation_gradient, input(op), micro_batch, -1);
  const auto share =
      values_.define(key(TensorKind::key_value_gradient, op, micro_batch, block), message_elements());
  if (block == cp_ - 1) values_.forget(dout_key);
  if (block == 0) {
    const auto dqkv = values_.define(dqkv_key, layers_.rows() * size_.qkv_columns());
    steps.push_back([=, this] {
      device_.attention_backward(size_of(op, micro_batch, 0), values_.numbers(qkv), values_.numbers(out),
                                 values_.numbers(dout), values_.floats(saved), values_.numbers(dqkv));
      extract(values_.numbers(share), values_.numbers(dqkv));
    });
    return;
  }
  const auto dqkv = values_.change(dqkv_key);
  const auto message = values_.use(key(TensorKind::key_value, op, micro_batch, block));
  steps.push_back([=, this, part = block_of(block)]() mutable {
    part.size = size_of(op, micro_batch, block);
    device_.attention_block_backward(part, values_.numbers(qkv), values_.numbers(message),
                                     values_part(message), values_.numbers(out), values_.numbers(dout),
                                     values_.floats(saved), values_.numbers(dqkv), values_.numbers(share),
                                     values_part(share));
  });
}

FormMathematics::Start RingAttention::start(const Instruction& instruction, Communicator& world,
                                            Values::Id sent, Values::Id received) const {
  const auto bytes = static_cast<std::size_t>(message_elements() * bytes_of(values_.type(received)));
  return [=, this, transfers = instruction.transfers, &world] {
    std::vector<MessageSpec> messages;
    for (const Transfer& transfer : transfers)
      messages.push_back(
          {transfer.peer, values_.at(transfer.send ? sent : received), bytes, transfer.tag, transfer.send});
    return world.exchange(messages);
  };
}

FormMathematics::Start RingAttention::communicate(const Instruction& instruction, Communicator& world,
                                                  std::vector<Values::Id>& uses) {
  const TensorRef tensor = instruction.transfers.front().tensor;
  const int op = tensor.index;
  const int micro_batch = tensor.micro_batch;
  const int block = instruction.block;
  const std::int64_t elements = message_elements();
  if (tensor.kind == TensorKind::key_value) {
    const auto received = values_.define(key(tensor.kind, op, micro_batch, block + 1), elements);
    if (block > 0) {
      const auto sent = values_.use(key(tensor.kind, op, micro_batch, block));
      uses.insert(uses.end(), {sent, received});
      return start(instruction, world, sent, received);
    }
    const auto fused = values_.use(key(TensorKind::activation, input(op), micro_batch, -1));
    const auto sent = values_.define(key(tensor.kind, op, micro_batch, 0), elements);
    uses.insert(uses.end(), {fused, sent, received});
    return [this, begin = start(instruction, world, sent, received), fused, sent] {
      extract(values_.numbers(sent), values_.numbers(fused));
      return begin();
    };
  }
  ORRERY_CHECK(tensor.kind == TensorKind::key_value_gradient, "an exchange of another tensor in a ring");
  const auto sent = values_.use(key(tensor.kind, op, micro_batch, block));
  const auto received = values_.define(key(tensor.kind, op, micro_batch, cp_ + block + 1), elements);
  uses.insert(uses.end(), {sent, received});
  auto begin = start(instruction, world, sent, received);
  if (block > 0) {
    const auto before = values_.use(key(tensor.kind, op, micro_batch, cp_ + block));
    uses.push_back(before);
    begin = [=, this] {
      device_.add(values_.numbers(sent), values_.numbers(before), static_cast<std::size_t>(elements));
      return begin();
    };
  }
  if (block < cp_ - 1) return begin;
  // The whole gradient of this rank's own keys and values is back.
  const auto dqkv = values_.change(key(TensorKind::activation_gradient, input(op), micro_batch, -1));
  uses.push_back(dqkv);
  return [this, begin, received, dqkv]() -> std::unique_ptr<Request> {
    return std::make_unique<ThenRequest>(
        begin(), [=, this] { insert(values_.numbers(received), values_.numbers(dqkv)); });
  };
}

}  // namespace orrery::exec
