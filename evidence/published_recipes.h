// What the recipes of a framework settle where the rows of published tables do not say (docs/accuracy.md,
// "From a row to a plan").
#pragma once

#include <string_view>

namespace orrery::planner {

struct Recipe {
  std::string_view framework;
  bool chunk_a_layer = false;      // a pipeline without a stated interleaving has a chunk a layer
  bool whole_experts = false;      // tensor ranks do not split them
  bool once_a_node = false;        // tokens are sent once to each node that has some of their experts
  bool plain_experts = false;      // experts are compiled, and nothing computes beside their traffic
  bool checkpoints = false;        // activations are recomputed on more than one device
  bool deals_in_turn = false;      // experts, instead of a router: a token's are neighbours
  bool adapts_everything = false;  // low-rank adapters on every projection of Hugging Face's own modules
};

// The first recipe whose name is a part of the framework's; all false for a framework that has none.
const Recipe& recipe_of(std::string_view framework);

}  // namespace orrery::planner
