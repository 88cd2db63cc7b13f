// The U-Net of latent diffusion (Rombach et al., arXiv 2112.10752), as diffusers' UNet2DConditionModel has
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "workloads/workload.h"

namespace orrery::internal {

struct Unet {
  struct Level {
    std::int64_t channels = 0;
    int layers = 2;        // pairs of convolutions, going down; one more going up
    int transformers = 0;  // blocks behind each pair; 0: none
    int up_transformers = 0;
  };
  std::vector<Level> levels;
  std::int64_t in = 4, out = 4, side = 64;  // of the latents
  int middle_transformers = 1;
  std::int64_t context = 768, context_tokens = 77;
  std::int64_t added = 0;          // width of what is said beside the time (SDXL: sizes and a text's summary)
  bool linear_projection = false;  // of the transformers: the same cost, no kernel of 1 x 1 in the weight
};
Workload unet(const Unet& shape);

}  // namespace orrery::internal
