// Newer networks of convolutions by their dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "workloads/workload.h"

namespace orrery::internal {

// Liu et al., arXiv 2201.03545; with norms of responses arXiv 2301.00808.
struct ConvNext {
  std::vector<std::int64_t> widths, depths;  // by stage
  std::int64_t channels = 3, side = 224, classes = 1000;
  int patch = 4;  // of the stem's convolution, which does not overlap
  bool layer_scale = true, response_norm = false;
};
Workload convnext(const ConvNext& shape);

// Tan and Le, arXiv 1905.11946: a stage repeats an inverted bottleneck with squeeze and excitation.
struct EfficientNet {
  struct Stage {
    std::int64_t in = 0, out = 0;  // channels
    int kernel = 3, stride = 1, expansion = 1, repeats = 1;
  };
  std::vector<Stage> stages;
  std::int64_t channels = 3, side = 224, stem = 32, top = 1280, classes = 1000;
  double squeeze = 0.25;  // of a block's input channels
};
Workload efficientnet(const EfficientNet& shape);

}  // namespace orrery::internal
