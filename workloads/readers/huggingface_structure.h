// A transformer's structure from the fields of its configuration.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "workloads/readers/huggingface_config.h"
#include "workloads/readers/huggingface_families.h"
#include "workloads/workload.h"

namespace orrery::internal {

// One configuration while it is read. What its parts share: which key says a dimension, which facts hold.
class Structure {
 public:
  Structure(Config& config, const Family& family);

  // Reads all of it. Throws UserError at the key that is missing, nonsensical or beyond what is modelled.
  Transformer read();

 private:
  // The key of a dimension ("ffn_hidden"): the family's, or the usual one that the file or the family's
  // defaults have. Where several say the same, the first that is not null.
  std::string key_of(std::string_view dimension);
  bool says(std::string_view dimension);  // and not null
  int number(std::string_view dimension, int fallback, int least, int most);
  int required(std::string_view dimension, int most);
  bool fact(std::string_view name) const { return facts_.contains(std::string(name)); }
  int set_number(std::string_view name, int fallback) const;
  std::string set_text(std::string_view name) const;

  void read_facts();
  void read_width();
  void read_attention();
  void read_latent_attention();
  void read_positions();
  void read_rotary();
  void read_norms();
  void read_heads_of_encoders();
  Activation activation();

  // huggingface_layers.cc
  void read_windows();
  void read_chunks();
  void read_layer_types();
  void read_mixers();
  void read_state_space();
  StateSpaceShape mamba2();
  StateSpaceShape mamba1();
  StateSpaceShape gated_delta();
  void pattern_of_words(const std::vector<bool>& attends);
  std::string letters(std::string_view key, std::string_view list_key);

  // huggingface_experts.cc
  void read_experts();
  void read_expert_layers(MixtureOfExperts* moe);
  int shared_width(int expert_width);

  Config& config_;
  const Family& family_;
  std::set<std::string> facts_;
  Transformer t_;
};

// What any class may say of its mathematics beside shapes: how rotary positions are scaled, dropout, and what
// the executor does not compute (Transformer::unexecuted); what is not counted is noted.
void read_mathematics(Config& config, const Family& family, Transformer* transformer, Workload* workload);

// A decoder or encoder of this model_type. One that is not known is read as of Llama's kind where every field
// is understood, with a note; else the error names the field and the ways on.
Transformer read_transformer(Config& config, const std::string& type, Workload* workload);

}  // namespace orrery::internal
