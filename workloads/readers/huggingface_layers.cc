// Layers of a configuration that differ: windows, chunks, state spaces between attention.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workloads/checks.h"
#include "workloads/readers/huggingface_structure.h"

namespace orrery::internal {

// Every layer in one of the newer configurations' words.
void Structure::read_layer_types() {
  const Json* types = config_.find("layer_types");
  if (types == nullptr) return;
  const auto wrong = [&](const std::string& what) {
    config_.fail("layer_types", what,
                 "expected full_attention, sliding_attention, chunked_attention or linear_attention a layer");
  };
  if (!types->is_array() || static_cast<int>(types->size()) != t_.layers) wrong("is no list of the layers");
  std::string pattern;
  std::vector<bool> attends;
  for (const Json& type : *types) {
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    const bool linear = name == "linear_attention";
    if (!linear && name != "full_attention" && name != "sliding_attention" && name != "chunked_attention")
      wrong(fmt::format("has an unknown kind '{}'", name));
    pattern += linear || name == "full_attention" ? 'f' : name[0] == 's' ? 'w' : 'c';
    attends.push_back(!linear);
  }
  if (std::find(attends.begin(), attends.end(), false) != attends.end()) return pattern_of_words(attends);
  if (pattern.find_first_of("wc") == std::string::npos) {
    t_.sliding_window = 0;
    return;
  }
  if (t_.sliding_window == 0) config_.fail(key_of("window"), "missing", "expected layer_types' window");
  // Every n-th is full, as two fields say it; or it takes a letter a layer.
  const std::size_t period = pattern.find('f') == std::string::npos ? 0 : pattern.find('f') + 1;
  bool regular = pattern.find('c') == std::string::npos;
  for (std::size_t i = 0; i < pattern.size(); ++i)
    regular = regular && (pattern[i] == 'f') == (period > 0 && (i + 1) % period == 0);
  t_.attention_pattern.clear();
  t_.sliding_window_from_layer = 0;
  if (regular) {
    t_.full_attention_period = static_cast<int>(period);
  } else {
    t_.attention_pattern = std::move(pattern);
  }
}

// Llama 4: layers with rotary positions attend within chunks, the others to everything.
void Structure::read_chunks() {
  const int interval = config_.integer("no_rope_layer_interval", 4, 1, kMaxLayers);
  const Json* list = config_.find("no_rope_layers");
  std::string pattern;
  for (int layer = 0; layer < t_.layers; ++layer) pattern += (layer + 1) % interval == 0 ? 'f' : 'c';
  if (list != nullptr && !list->empty()) {
    if (!list->is_array() || static_cast<int>(list->size()) < t_.layers)
      config_.fail("no_rope_layers", "is no list of the layers", "expected 0 or 1 a layer");
    for (int layer = 0; layer < t_.layers; ++layer) pattern[layer] = (*list)[layer] == 0 ? 'f' : 'c';
  }
  t_.unexecuted.emplace_back("no_rope_layers");
  if (t_.sliding_window > 0) t_.attention_pattern = std::move(pattern);
}

void Structure::read_windows() {
  t_.sliding_window = number("window", 0, 1, kMaxPositions);
  // Qwen2 and Qwen3 slide only where asked, and only from max_window_layers on.
  const int from = config_.integer("max_window_layers", 0, 0, kMaxLayers);
  if (config_.find("use_sliding_window") != nullptr) {
    if (config_.boolean("use_sliding_window", false)) {
      t_.sliding_window_from_layer = from;
    } else {
      t_.sliding_window = 0;
    }
  }
  t_.full_attention_period =
      config_.integer("sliding_window_pattern", set_number("full_attention_period", 0), 1, kMaxLayers);
  if (config_.find("global_attn_every_n_layers") != nullptr) {
    // ModernBERT: the first of every n attends to everything, the others half a window to either side.
    const int period = config_.required("global_attn_every_n_layers", kMaxLayers);
    for (int layer = 0; layer < t_.layers; ++layer) t_.attention_pattern += layer % period == 0 ? 'f' : 'w';
    t_.sliding_window /= 2;
    if (t_.sliding_window == 0) t_.attention_pattern.clear();
  }
  if (family_.set.contains("chunked")) {
    read_chunks();
  } else {
    bool some = false;  // layers without positions: of no other shape
    for (const char* key : {"no_rope_layers", "no_rope_layer_interval"})
      some = config_.find(key) != nullptr || some;
    if (some) t_.unexecuted.emplace_back("no_rope_layers");
  }
  if (set_text("mixer").empty()) {
    read_layer_types();
    if (const Json* list = config_.find("attn_type_list"); list != nullptr)
      for (const Json& kind : *list)
        if (kind != 1) config_.fail("attn_type_list", "has linear attention", "expected 1 a layer");
  }
  if (t_.sliding_window == 0) t_.full_attention_period = t_.sliding_window_from_layer = 0;
}

// A word a layer: what mixes tokens, then MLP or experts.
void Structure::pattern_of_words(const std::vector<bool>& attends) {
  const bool rotary = set_text("mixer") != "mamba1";
  std::string pattern;
  for (int layer = 0; layer < t_.layers; ++layer) {
    pattern += attends[static_cast<std::size_t>(layer)] ? (rotary ? 'A' : '*') : 'M';
    pattern += t_.layer_has_experts(layer) ? 'E' : '-';
    pattern += ' ';
  }
  t_.layer_pattern = std::move(pattern);
}

// transformers' NemotronHConfig; the pattern has a letter a layer, or layers_block_type a word.
std::string Structure::letters(std::string_view key, std::string_view list_key) {
  std::string pattern = config_.text(key, "");
  const Json* words = config_.find(list_key);
  if (!pattern.empty() || words == nullptr) return pattern;
  static const std::map<std::string_view, char> known = {
      {"mamba", 'M'}, {"attention", '*'}, {"mlp", '-'}, {"moe", 'E'}};
  std::string found;
  for (const Json& word : *words) {
    const auto at = word.is_string() ? known.find(word.get_ref<const std::string&>()) : known.end();
    if (at == known.end())
      config_.fail(list_key, fmt::format("has an unknown kind {}", word.dump()),
                   "expected mamba, attention, mlp or moe");
    found += at->second;
  }
  return found;
}

StateSpaceShape Structure::mamba2() {
  const auto key = [&](const char* hybrid, const char* plain) {
    return config_.has(hybrid) ? hybrid : plain;
  };
  StateSpaceShape s;
  s.heads = config_.required(key("mamba_num_heads", "num_heads"), kMaxHeads);
  s.head_dim = config_.required(key("mamba_head_dim", "head_dim"), kMaxHeads);
  s.state = config_.required(key("ssm_state_size", "state_size"), kMaxHeads);
  s.groups = config_.integer("n_groups", 8, 1, kMaxHeads);
  s.conv_kernel = config_.integer("conv_kernel", 4, 1, 1024);
  s.chunk = config_.integer("chunk_size", 128, 1, kMaxPositions);
  s.proj_bias = config_.boolean("use_bias", false);
  s.conv_bias = config_.boolean("use_conv_bias", true);
  return s;
}

StateSpaceShape Structure::mamba1() {
  const auto key = [&](const char* hybrid, const char* plain) {
    return config_.has(hybrid) ? hybrid : plain;
  };
  StateSpaceShape s;
  s.kind = StateSpaceKind::mamba1;
  // Of a model of these layers alone intermediate_size is their width, whatever `expand` says.
  const bool said_width = !config_.has("mamba_expand") && config_.find("intermediate_size") != nullptr;
  const std::int64_t expanded =
      std::int64_t{config_.integer(key("mamba_expand", "expand"), 2, 1, 1024)} * t_.hidden;
  const std::int64_t inner = said_width ? config_.required("intermediate_size", kMaxWidth) : expanded;
  if (inner > kMaxHeads)
    config_.fail(key("mamba_expand", "expand"), fmt::format("makes {} channels", inner), "expected fewer");
  s.heads = static_cast<int>(inner);
  s.head_dim = 1;
  s.state = config_.required(key("mamba_d_state", "state_size"), kMaxHeads);
  s.conv_kernel = config_.integer(key("mamba_d_conv", "conv_kernel"), 4, 1, 1024);
  s.conv_bias = config_.boolean(key("mamba_conv_bias", "use_conv_bias"), true);
  s.proj_bias = config_.boolean(key("mamba_proj_bias", "use_bias"), false);
  const char* rank = key("mamba_dt_rank", "time_step_rank");
  const Json* said = config_.find(rank);
  s.step_rank = said != nullptr && said->is_string()
                    ? (t_.hidden + 15) / 16
                    : config_.integer(rank, (t_.hidden + 15) / 16, 1, kMaxWidth);
  s.inner_norms = family_.set.contains("inner_norms");
  return s;
}

StateSpaceShape Structure::gated_delta() {
  StateSpaceShape s;
  s.kind = StateSpaceKind::gated_delta;
  s.heads = config_.required("linear_num_value_heads", kMaxHeads);
  s.head_dim = config_.required("linear_value_head_dim", kMaxHeads);
  s.state = config_.required("linear_key_head_dim", kMaxHeads);
  s.groups = config_.required("linear_num_key_heads", kMaxHeads);
  s.conv_kernel = config_.integer("linear_conv_kernel_dim", 4, 1, 1024);
  s.conv_bias = false;
  s.chunk = 64;  // flash-linear-attention's, which transformers calls
  return s;
}

void Structure::read_state_space() {
  const std::string mixer = set_text("mixer");
  if (mixer == "mamba2") {
    t_.state_space = mamba2();
  } else if (mixer == "mamba1") {
    t_.state_space = mamba1();
  } else if (mixer == "gated_delta") {
    t_.state_space = gated_delta();
  } else {
    StateSpaceShape s;
    s.kind = StateSpaceKind::lightning;
    s.heads = s.groups = t_.heads;
    s.head_dim = s.state = t_.head_dim;
    s.conv_kernel = 0;
    s.conv_bias = false;
    s.chunk = config_.integer("block_size", 256, 1, kMaxPositions);
    t_.state_space = s;
  }
}

void Structure::read_mixers() {
  const std::string mixer = set_text("mixer");
  if (mixer.empty()) return;
  read_state_space();
  t_.layer_pattern = letters("hybrid_override_pattern", "layers_block_type");
  t_.multi_token_pattern = letters("mtp_hybrid_override_pattern", "mtp_layers_block_type");
  if (t_.layers == 0)
    t_.layers = static_cast<int>(std::min<std::size_t>(t_.layer_pattern.size(), kMaxLayers));
  std::vector<bool> attends(static_cast<std::size_t>(t_.layers), false);
  if (!t_.layer_pattern.empty()) {
    // A letter a layer.
  } else if (config_.find("attn_type_list") != nullptr) {
    // MiniMax: 1 of attention, 0 of lightning attention.
    const Json& list = *config_.find("attn_type_list");
    if (!list.is_array() || static_cast<int>(list.size()) != t_.layers)
      config_.fail("attn_type_list", "is no list of the layers", "expected 0 or 1 a layer");
    for (std::size_t layer = 0; layer < attends.size(); ++layer) attends[layer] = list[layer] == 1;
    pattern_of_words(attends);
  } else if (config_.find("attn_layer_period") != nullptr) {
    const int period = config_.required("attn_layer_period", kMaxLayers);
    const int offset = config_.integer("attn_layer_offset", 0, 0, period - 1);
    for (int layer = 0; layer < t_.layers; ++layer)
      attends[static_cast<std::size_t>(layer)] = layer % period == offset;
    pattern_of_words(attends);
  } else if (config_.find("layer_types") != nullptr) {
    read_layer_types();
    if (t_.layer_pattern.empty()) config_.fail("layer_types", "has no linear_attention", "expected some");
  } else if (config_.find("full_attention_interval") != nullptr) {
    const int interval = config_.required("full_attention_interval", kMaxLayers);
    for (int layer = 0; layer < t_.layers; ++layer)
      attends[static_cast<std::size_t>(layer)] = (layer + 1) % interval == 0;
    pattern_of_words(attends);
  } else if (config_.in_file("num_attention_heads")) {
    config_.fail(mixer == "mamba2" ? "hybrid_override_pattern" : "layer_types", "missing",
                 "expected what each layer is");
  } else {
    t_.layer_pattern = std::string(static_cast<std::size_t>(t_.layers), 'M');
    t_.heads = t_.kv_heads = t_.state_space->heads;
    t_.head_dim = t_.state_space->head_dim;
    t_.ffn_hidden = 0;
  }
  if ((t_.layer_pattern + t_.multi_token_pattern).find('E') == std::string::npos) {
    t_.moe.reset();
  } else if (!t_.moe) {
    required("experts", kMaxExperts);
  }
  if (t_.layer_pattern.size() > kMaxLayers * 3ULL)
    config_.fail("hybrid_override_pattern", "missing, or too long", "expected a letter a layer");
}

}  // namespace orrery::internal
