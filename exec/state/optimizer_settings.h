// What an optimizer is told beside its rate. Defaults are PyTorch's.
#pragma once

#include <optional>

namespace orrery::exec {

struct OptimizerSettings {
  // Adam: added to the gradient (L2); AdamW: taken off the weight. Nothing: 0, AdamW 0.01.
  std::optional<double> weight_decay;
  bool decay_matrices_only = false;  // biases and norms (tensors of one dimension) do not decay
  double momentum = 0.9;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // Adam, AdamW
  double clip_norm = 1;  // largest norm of all gradients, where the plan's runtime clips
};

}  // namespace orrery::exec
