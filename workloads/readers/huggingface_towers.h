// Models of several sequences, or of images: encoders with decoders (T5, BART, Whisper), towers of images
// (ViT, DINOv2) and of images beside texts (CLIP).
#pragma once

#include <string_view>

#include "workloads/readers/huggingface_config.h"
#include "workloads/readers/huggingface_families.h"
#include "workloads/workload.h"

namespace orrery::internal {

// How many classes images are told apart in.
std::int64_t classes_of(Config& config);
// Refuses more parameters than anything here counts.
void check_size(const std::vector<Operator>& operators, std::string_view file);

// As a general graph: a row is a sample, whose lengths are the configuration's own. Fills operators, layers
// (a block each) and notes. Throws UserError as Structure does.
void read_towers(Config& config, const Family& family, std::string_view text, std::string_view file,
                 Workload* workload);

}  // namespace orrery::internal
