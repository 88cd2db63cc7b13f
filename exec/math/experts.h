// The operators between a router and the combination of its experts' outputs, and what travels between them
// (docs/program.md, experts). How many tokens an expert gets is known only when the router has run: what
// depends on it has dynamic values, and counts are exchanged before tokens.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "exec/communicators/communicator.h"
#include "exec/device/memory_pool.h"
#include "exec/device/on_device.h"
#include "exec/math/forms.h"
#include "exec/math/layers.h"
#include "exec/math/routing.h"

namespace orrery::exec {

class Experts final : public FormMathematics {
 public:
  // Tokens are routed on the host, wherever the device's memory is.
  explicit Experts(const FormParts& parts);

  bool computes(int op) const override;
  void forward(const Instruction& instruction, int op, std::vector<Step>& steps) override;
  void backward(const Instruction& instruction, int op, std::vector<Step>& steps) override;
  // What ranks say to each other about an operator's rows.
  Start communicate(const Instruction& instruction, Communicator& communicator,
                    std::vector<Values::Id>& uses) override;
  std::vector<RoutedRows> routed() const override { return routed_; }
  bool repeats() const override { return false; }  // the host decides in each step anew where tokens go

 private:
  const Operator& op(int index) const { return operators_[static_cast<std::size_t>(index)]; }
  int router_of(int op) const;
  // A routing, and what of it the device reads.
  struct Routed {
    explicit Routed(Device& device)
        : slot(device), weight(device), token_of_slot(device), weight_of_slot(device), counts(device) {}
    Routing host;
    OnDevice slot, weight, token_of_slot, weight_of_slot;
    OnDevice counts;  // rows to each expert, then from each sender: they travel from and to device memory
    std::vector<std::int64_t> gathered;  // Routing::received of all ranks that share the experts
  };
  Routed* routed_of(int op, int micro_batch);  // stays where it is
  Key activation(int op, int micro_batch) const {
    return {TensorKind::activation, op, micro_batch, Form::whole};
  }
  Key gradient(int op, int micro_batch) const {
    return {TensorKind::activation_gradient, op, micro_batch, Form::whole};
  }
  Key stream(TensorKind kind, int op, int micro_batch) const { return {kind, op, micro_batch, form_}; }
  // The device's values where the host can read them: `copy` where it cannot.
  const float* on_host(const float* data, std::int64_t count, std::vector<float>* copy) const;
  std::int64_t columns_of(int op) const;  // of one row on this rank

  void router_forward(int op, int micro_batch, std::vector<Step>& steps);
  void router_backward(int op, int micro_batch, bool input, bool weight, std::vector<Step>& steps);
  void dispatch_forward(int op, int micro_batch, std::vector<Step>& steps);
  void dispatch_backward(int op, int micro_batch, std::vector<Step>& steps);
  void products_forward(int op, int micro_batch, std::vector<Step>& steps);
  void products_backward(int op, int micro_batch, bool input, bool weight, std::vector<Step>& steps);
  void activation_forward(int op, int micro_batch, std::vector<Step>& steps);
  void activation_backward(int op, int micro_batch, std::vector<Step>& steps);
  void combine_forward(int op, int micro_batch, std::vector<Step>& steps);
  void combine_backward(int op, int micro_batch, std::vector<Step>& steps);
  std::unique_ptr<Request> all_to_all(const Routed& routed, Values::Id from, Values::Id to, bool to_experts,
                                      Communicator& communicator);
  std::unique_ptr<Request> all_gather(const Routed& routed, Values::Id from, Values::Id to,
                                      Communicator& communicator);
  // Counts come first: of rows from each rank, of rows of each rank that shares the experts.
  Start count_received(Routed* routed, const Start& move, Communicator& communicator);
  Start count_gathered(Routed* routed, const Start& move, Communicator& communicator);
  using SendCounts =
      std::function<std::unique_ptr<Request>(const std::int64_t* sent, std::int64_t* received)>;
  std::unique_ptr<Request> exchange_counts(Routed* routed, const std::vector<std::int64_t>& sent,
                                           std::vector<std::int64_t>* received, const SendCounts& send,
                                           const Start& then);

  const std::vector<Operator>& operators_;
  const Transformer& model_;
  Layers& layers_;
  Parameters& parameters_;
  Device& device_;
  Values& values_;
  MemoryPool pool_;
  std::map<std::pair<int, int>, std::unique_ptr<Routed>> routings_;  // by router and micro-batch
  Form form_;                                                        // of tokens outside
  std::int64_t rows_;                                                // tokens of a micro-batch on this rank
  std::int64_t hidden_;
  Shard shard_;
  int ep_;
  int etp_;
  std::int64_t capacity_ = 0;  // rows an expert and sender; 0: as many as come
  std::vector<RoutedRows> routed_;
  double balance_;  // auxiliary loss's coefficient by the global batch's tokens
};

}  // namespace orrery::exec
