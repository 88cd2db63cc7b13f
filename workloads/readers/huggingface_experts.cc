// Mixtures of experts of a configuration.
#include <fmt/format.h>

#include <algorithm>

#include "workloads/checks.h"
#include "workloads/readers/huggingface_structure.h"

namespace orrery::internal {
namespace {

// Layers that have an MLP in place of experts, where these are the first ones.
int first_dense_layers(Config& config) {
  const Json* list = config.find("mlp_only_layers");
  if (list == nullptr) return config.integer("first_k_dense_replace", 0, 0, kMaxLayers);
  int next = 0;
  if (!list->is_array()) config.fail("mlp_only_layers", "is no list", "expected a list of layers");
  for (const Json& layer : *list) {
    if (!layer.is_number_integer() || layer.get<std::int64_t>() != next)
      config.fail("mlp_only_layers", "is not the first layers", "expected [], [0], [0, 1], ...");
    ++next;
  }
  return next;
}

}  // namespace

// All shared experts together: by their own width, their number, or both.
int Structure::shared_width(int expert_width) {
  const bool counted = says("shared_experts");
  const int count = number("shared_experts", 1, 0, kMaxExperts);
  const bool sized = says("shared_ffn_hidden");
  const int width = number("shared_ffn_hidden", expert_width, 0, kMaxWidth);
  if (!sized && !counted) return 0;
  if (static_cast<std::int64_t>(width) * count > kMaxWidth)
    config_.fail(key_of("shared_experts"), fmt::format("{}", count), "expected fewer shared experts");
  return width * count;
}

void Structure::read_expert_layers(MixtureOfExperts* moe) {
  moe->first_dense_layers = first_dense_layers(config_);
  if (moe->first_dense_layers >= t_.layers)
    config_.fail(config_.find("mlp_only_layers") != nullptr ? "mlp_only_layers" : "first_k_dense_replace",
                 fmt::format("{} of {} layers have no experts", moe->first_dense_layers, t_.layers),
                 "expected fewer than the layers");
  // Which of the layers: moe_layer_freq counts them from 0, the others from 1.
  for (const char* key : {"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq"}) {
    if (config_.find(key) == nullptr) continue;
    moe->layer_period = config_.integer(key, 1, 1, kMaxLayers);
    moe->layer_offset = std::string_view(key) == "moe_layer_freq" ? 0 : moe->layer_period - 1;
  }
  if (config_.find("expert_layer_period") != nullptr) {
    moe->layer_period = config_.required("expert_layer_period", kMaxLayers);
    moe->layer_offset = config_.integer("expert_layer_offset", 0, 0, moe->layer_period - 1);
  }
  const Json* list = config_.find("moe_layers");
  if (list == nullptr) return;
  Json as_read = Json::array();
  for (int layer = moe->first_dense_layers; layer < t_.layers; ++layer)
    if (layer % moe->layer_period == moe->layer_offset) as_read.push_back(layer);
  if (*list != as_read)
    config_.fail("moe_layers", "are not every n-th layer", "expected interleave_moe_layer_step alone");
}

void Structure::read_experts() {
  const int count = number("experts", 0, 1, kMaxExperts);
  const bool hybrid_without = config_.in_file("hybrid_override_pattern") && count == 0;
  if (count == 0) {
    if (hybrid_without || !set_text("mixer").empty()) {
      for (const char* unused : {"num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",
                                 "moe_shared_expert_intermediate_size", "moe_latent_size"})
        config_.use(unused);
    } else {
      for (const char* unused : {"num_experts_per_tok", "moe_intermediate_size", "n_shared_experts",
                                 "first_k_dense_replace", "moe_layer_freq", "norm_topk_prob", "topk_method"})
        config_.use(unused);
    }
    return;
  }
  MixtureOfExperts moe;
  moe.experts = count;
  moe.experts_per_token = number("experts_per_token", 0, 1, kMaxExperts);
  if (!says("experts_per_token") && moe.experts_per_token < 1)
    config_.fail(key_of("experts"), fmt::format("{} experts, and nothing says how many take a token", count),
                 fmt::format("expected {} beside it", key_of("experts_per_token")));
  if (moe.experts_per_token < 1 || moe.experts_per_token > count)
    config_.fail(key_of("experts_per_token"), fmt::format("{}", moe.experts_per_token),
                 fmt::format("expected 1 to {}", count));
  // Without a width of their own they have the MLP's.
  moe.expert_ffn_hidden = says("expert_ffn_hidden") ? required("expert_ffn_hidden", kMaxWidth)
                                                    : required("ffn_hidden", kMaxWidth);
  moe.shared_ffn_hidden = shared_width(moe.expert_ffn_hidden);
  moe.latent = config_.integer("moe_latent_size", 0, 0, kMaxWidth);
  read_expert_layers(&moe);
  moe.shared_gate = fact("shared_gate") && moe.shared_ffn_hidden > 0;
  // The router's correction bias came with v3's auxiliary-loss-free balancing.
  moe.selection_bias = fact("router_bias") || config_.text("topk_method", "") == "noaux_tc";
  moe.router_linear_bias = fact("router_linear_bias");
  moe.expert_bias = fact("expert_bias");
  moe.expert_up_bias = fact("expert_up_bias");
  moe.scaled_weights = config_.boolean("norm_topk_prob", true);
  moe.auxiliary_loss =
      config_.real("router_aux_loss_coef", config_.real("moe_loss_weight", 0, 0, 1e3), 0, 1e3);
  t_.moe = moe;
}

}  // namespace orrery::internal
