// Networks whose configurations have fields of their own: of convolutions (ConvNeXt, EfficientNet), of
// diffusion (diffusers' U-Net and DiT, by `_class_name`), DeBERTa.
#pragma once

#include "workloads/readers/huggingface_config.h"
#include "workloads/readers/huggingface_families.h"
#include "workloads/workload.h"

namespace orrery::internal {

// Whether `graph` (families.json) is one of these.
bool is_network(std::string_view graph);

// As a general graph: a row is a sample. Fills operators, layers and notes. Throws UserError as Structure
// does.
void read_network(Config& config, const Family& family, std::string_view file, Workload* workload);

}  // namespace orrery::internal
