// Cuts of a model's layers into consecutive parts, for pipelines.
#pragma once

#include <memory>
#include <vector>

#include "program/plan.h"

namespace orrery::planner {

// Layers of each part; the remainder goes to the earlier ones, as an even cut of program/plan.h.
std::vector<int> even_cut(const Job& job, int parts);
// FLOPs of each layer for one sample, forward; embedding counted with the first, head with the last.
std::vector<double> layer_weights(const std::shared_ptr<const Job>& job);
// The cut whose heaviest part has the least weight; of those the one with the
// most even parts. Empty where there are fewer layers than parts.
std::vector<int> balanced_cut(const std::vector<double>& weights, int parts);
// Weight of a cut's heaviest part.
double heaviest_part(const std::vector<double>& weights, const std::vector<int>& cut);
// Embedding and head counted as a layer each (Megatron-LM's --account-for-embedding-in-pipeline-split and
// --account-for-loss-in-pipeline-split): the first and the last part may have no other layer. Empty where
// there are not as many layers. `embedding`, `head`: 0 where that one does not count.
std::vector<int> ends_count_cut(int layers, int parts, int embedding = 1, int head = 1);
// Whether parts are equal so, but not without: 126 layers in 128 chunks.
bool ends_fill_parts(int layers, int parts);

}  // namespace orrery::planner
