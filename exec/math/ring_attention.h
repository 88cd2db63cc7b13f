// Attention over sequences that a context group shares (docs/program.md, context parallelism): block by block
// as keys and values come round.
#pragma once

#include <memory>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/device/device.h"
#include "exec/math/forms.h"
#include "exec/math/layers.h"
#include "exec/math/values.h"
#include "program/program.h"

namespace orrery::exec {

class RingAttention final : public FormMathematics {
 public:
  explicit RingAttention(const FormParts& parts);

  bool computes(int op) const override;
  // One block.
  void forward(const Instruction& instruction, int op, std::vector<Step>& steps) override;
  void backward(const Instruction& instruction, int op, std::vector<Step>& steps) override;
  // The exchange of a block's keys and values or of their gradients.
  Start communicate(const Instruction& instruction, Communicator& world,
                    std::vector<Values::Id>& uses) override;

 private:
  int input(int op) const;
  AttentionBlock block_of(int block) const;
  // While a step runs: with the dropout of the block's probabilities.
  AttentionSize size_of(int op, int micro_batch, int block) const;
  std::int64_t message_elements() const;  // all keys of the rank's rows, then all values
  Numbers values_part(Values::Id message) const { return values_.numbers(message) + message_elements() / 2; }
  Key key(TensorKind kind, int op, int micro_batch, int block) const {
    return {kind, op, micro_batch, Form::whole, block};
  }
  // Between the columns of a fused tensor (queries | keys | values) and a message.
  void extract(Numbers message, ConstNumbers fused) const;
  void insert(ConstNumbers message, Numbers fused) const;
  Start start(const Instruction& instruction, Communicator& world, Values::Id sent,
              Values::Id received) const;

  const std::vector<Operator>& operators_;
  const Layers& layers_;
  Device& device_;
  Values& values_;
  AttentionSize size_;
  int cp_;
  int position_;
};

}  // namespace orrery::exec
