// Language models that read pictures (LLaVA, Qwen-VL): a tower over patches, a projector, a decoder.
#pragma once

#include <string_view>

#include "base/json.h"
#include "workloads/readers/huggingface_families.h"
#include "workloads/workload.h"

namespace orrery::internal {

// As a general graph: a row is a sample, `sample_images` pictures within `sample_tokens` tokens. Fills
// operators, layers (a block each, of the tower, then of the decoder) and notes. False, with a note, where
// the decoder is of a kind that graphs do not have (experts, state spaces): it is then planned by itself.
// Throws UserError as Structure does.
bool read_vision_language(const Json& root, const Family& family, std::string_view text,
                          std::string_view file, Workload* workload);

}  // namespace orrery::internal
