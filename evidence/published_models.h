// The models that published tables name: what the dimensions of a row leave open.
#pragma once

#include <string>

#include "workloads/workload.h"

namespace orrery::planner {

// Dimensions as a row has them; 0: not stated.
struct PublishedModel {
  std::string name;
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn_hidden = 0, vocab = 0, seq_len = 0;
};

// The family's facts (gating, norms, experts) by the name, dimensions by the row, then by the name;
// vocabularies that no one states are GPT-2's, padded. Throws Unreadable.
Workload published_workload(const PublishedModel& model);

}  // namespace orrery::planner
