// The models that published tables name: what the dimensions of a row leave open
// (evidence/data/models.textproto).
#pragma once

#include <string>
#include <vector>

#include "evidence/words/rules.h"
#include "workloads/workload.h"

namespace orrery::evidence {

// Dimensions as a row has them; 0: not stated.
struct StatedModel {
  std::string name;
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, ffn_hidden = 0, vocab = 0, seq_len = 0;
  double parameters = 0;
  bool own = false;  // of one's own table or log: public models by their whole names first
  bool shaped() const { return layers > 0 && hidden > 0; }  // does not leave its shape to its name
};

// The length of sequences that a model of this name is trained on; 0: not known.
int known_seq_len(const StatedModel& model);
// Dimensions by the row, then by the name, then by the number of parameters (that adds to `assumed`);
// `changes` of Transformer (textproto) last. Throws Unreadable, or UserError where the result is no sound
// model.
Workload workload_of(const StatedModel& model, const std::vector<std::string>& changes = {},
                     std::vector<Assumed>* assumed = nullptr);

}  // namespace orrery::evidence
