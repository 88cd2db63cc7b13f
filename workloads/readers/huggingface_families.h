// What families of models have in common, and their configurations do not say: rows of
// families/families.json, by `model_type`.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "workloads/readers/huggingface_config.h"

namespace orrery::internal {

// A row, with those that it is like merged into it.
struct Family {
  std::string graph;    // encoder_decoder, images, two_towers (huggingface_towers.h); empty: a Transformer
  std::string tensors;  // whose names its weights have (workloads/tensor_names.h)
  Json defaults = Json::object();  // of keys that a file leaves out
  std::set<std::string> is;        // facts, as in proto/workload.proto ("qk_norm", "gated_ffn")
  Json set = Json::object();       // further facts, with a value
  std::map<std::string, std::string, std::less<>> keys;                // the key of a dimension
  std::map<std::string, std::vector<std::string>, std::less<>> means;  // facts that a boolean key decides
  Json usual = Json::object();                                         // what keys must say
  std::map<std::string, std::string, std::less<>> left_out;            // keys of what is not planned: why
  std::map<std::string, std::string, std::less<>> harmless;            // keys that change nothing: why
  // Where a key's dropout is, where that is not usual; nowhere: it is not executed.
  std::map<std::string, std::vector<std::string>, std::less<>> dropouts;
  std::vector<std::string> unexecuted, notes;
};

const std::map<std::string, Family, std::less<>>& huggingface_families();

// Marks what the family leaves out as read; fails at a key that does not say what is usual.
void check_usual(Config& config, const Family& family);

}  // namespace orrery::internal
