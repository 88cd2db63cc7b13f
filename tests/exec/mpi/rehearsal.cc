// The form of parallelism of tests/rehearsal, executed: rows of an MLP that each rank computes a share of.
#include "base/error.h"
#include "equivalence.h"
#include "exec/math/forms.h"
#include "test_plans.h"
#include "tests/rehearsal/row_form.h"

namespace orrery::exec::test {
namespace {

using orrery::test::kRows;
using orrery::test::shares_rows;

class RowMathematics final : public FormMathematics {
 public:
  explicit RowMathematics(const FormParts& parts)
      : operators_(parts.plan.job->workload.operators),
        model_(*parts.plan.job->workload.transformer),
        layers_(parts.layers),
        parameters_(parts.parameters),
        device_(parts.device),
        values_(parts.values),
        rows_(parts.layers.rows_of(Form::shard)),
        first_row_(rows_ * parts.program.at.tp) {}

  bool computes(int op) const override { return shares_rows(at(op)); }

  void forward(const Instruction& instruction, int op, std::vector<Step>& steps) override {
    const int input = at(op).inputs.front();
    const int mb = instruction.micro_batch;
    if (!computes(input)) take_share(TensorKind::activation, input, mb, steps);
    const auto x = values_.use(key(TensorKind::activation, input, mb));
    const auto y = values_.define(key(TensorKind::activation, op, mb), rows_ * columns(op));
    if (at(op).kind == OperatorKind::activation) {
      steps.push_back([=, this] {
        device_.activation_forward(model_.activation, model_.gated_ffn, values_.numbers(x),
                                   values_.numbers(y), rows_, columns(op));
      });
      return;
    }
    std::int64_t column = 0;
    for (const HeldTensor* weight : weights(op)) {
      const Layers::Place w = layers_.weight_of(*weight);
      steps.push_back([=, this, out = weight->shape[0], in = weight->shape[1]] {
        device_.linear(/*out_by_in=*/true, rows_, out, in, values_.numbers(x), in, layers_.at(w), nullptr,
                       values_.numbers(y) + column, columns(op));
      });
      column += weight->shape[0];
    }
  }

  void backward(const Instruction& instruction, int op, std::vector<Step>& steps) override {
    const int input = at(op).inputs.front();
    const int mb = instruction.micro_batch;
    const Key out = key(TensorKind::activation_gradient, op, mb);
    if (!values_.has(out)) {  // it came whole from the residual
      take_share(TensorKind::activation_gradient, op, mb, steps);
      values_.forget({TensorKind::activation_gradient, op, mb, Form::whole});
    }
    const auto dy = values_.use(out);
    values_.forget(out);
    const auto x = values_.use(key(TensorKind::activation, input, mb));
    const auto dx = values_.define(key(TensorKind::activation_gradient, input, mb), rows_ * columns(input));
    if (at(op).kind == OperatorKind::activation) {
      steps.push_back([=, this] {
        device_.activation_backward(model_.activation, model_.gated_ffn, values_.numbers(x),
                                    values_.numbers(dy), values_.numbers(dx), rows_, columns(op));
      });
      return;
    }
    std::int64_t column = 0;
    for (const HeldTensor* weight : weights(op)) {
      const Layers::Place w = layers_.weight_of(*weight);
      const Layers::Place dw = layers_.gradient_of(*weight, mb, steps);
      steps.push_back([=, this, out = weight->shape[0], in = weight->shape[1]] {
        const ConstNumbers gradient = values_.numbers(dy) + column;
        device_.gemm(true, false, out, in, rows_, 1, gradient, columns(op), values_.numbers(x), in, 1,
                     layers_.ready_to_add(dw), in);
        device_.gemm(false, false, rows_, in, out, 1, gradient, columns(op), layers_.at(w), in,
                     column == 0 ? 0.0F : 1.0F, values_.numbers(dx), in);
      });
      column += weight->shape[0];
    }
  }

  // Gathered like any tensor that ranks have shares of.
  Start communicate(const Instruction&, Communicator&, std::vector<Values::Id>&) override { return nullptr; }

 private:
  const Operator& at(int op) const { return operators_[static_cast<std::size_t>(op)]; }
  static Key key(TensorKind kind, int op, int mb) { return {kind, op, mb, Form::shard}; }
  std::int64_t columns(int op) const { return at(op).output_elements; }

  std::vector<const HeldTensor*> weights(int op) const {
    std::vector<const HeldTensor*> all;
    for (std::size_t p = 0; p < at(op).parameters.size(); ++p)
      all.push_back(parameters_.find(op, static_cast<int>(p)));
    return all;
  }

  // This rank's rows of what every rank has whole.
  void take_share(TensorKind kind, int op, int mb, std::vector<Step>& steps) {
    const auto whole = values_.use({kind, op, mb, Form::whole});
    const std::int64_t elements = rows_ * columns(op);
    const auto share = values_.define(key(kind, op, mb), elements);
    steps.push_back([=, this, first = first_row_ * columns(op)] {
      const ConstNumbers from = values_.numbers(whole) + first;
      device_.copy(values_.at(share), from.data(), from.bytes(elements));
    });
  }

  const std::vector<Operator>& operators_;
  const Transformer& model_;
  Layers& layers_;
  Parameters& parameters_;
  Device& device_;
  Values& values_;
  std::int64_t rows_;
  std::int64_t first_row_;
};

std::unique_ptr<FormMathematics> make_rows(const FormParts& parts) {
  if (parts.plan.choices.degree(orrery::test::kRowsName) == 1) return nullptr;
  return std::make_unique<RowMathematics>(parts);
}

}  // namespace

std::vector<PlanCase> rehearsal_cases(int world) {
  orrery::test::register_rows();
  register_executed({kRows, make_rows});
  std::vector<PlanCase> cases;
  const auto add = [&](const std::string& name, int tp, int dp, int zero, int micro_batch) {
    if (tp * dp != world) return;
    PlanCase c;
    c.name = name;
    c.llama = true;
    c.workload = orrery::test::hold_mlps_whole;
    c.choices.tp = tp;
    c.choices.dp = dp;
    c.choices.zero = zero;
    c.choices.micro_batch = micro_batch;
    c.choices.degrees[orrery::test::kRowsName] = tp;
    cases.push_back(c);
  };
  add("rows of MLPs", 2, 1, 0, 2);
  add("rows of MLPs, one sample a micro-batch", 2, 1, 0, 1);
  add("rows of MLPs, sharded states", 2, 2, 1, 2);
  add("rows of MLPs, sharded gradients", 2, 2, 2, 1);
  if (cases.empty()) throw InternalError("no rehearsal on so many ranks");
  return cases;
}

}  // namespace orrery::exec::test
