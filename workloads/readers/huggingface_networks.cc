#include "workloads/readers/huggingface_networks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "workloads/checks.h"
#include "workloads/networks/picture_networks.h"
#include "workloads/networks/tower_networks.h"
#include "workloads/networks/unet.h"
#include "workloads/readers/huggingface_towers.h"

namespace orrery::internal {
namespace {

constexpr int kMostPixels = 1 << 14;  // of a side
constexpr int kMostRepeats = 1000;
constexpr std::size_t kMostStages = 64;
constexpr int kMostTokens = 1 << 20;

// A list of whole numbers; `count`: as many, or as many times one.
std::vector<int> numbers(Config& config, const char* key, std::size_t count, int most) {
  const auto refuse = [&] {
    config.fail(key, "is no such list",
                count > 0 ? fmt::format("expected {} whole numbers from 1 to {}", count, most)
                          : fmt::format("expected 1 to {} whole numbers from 1 to {}", kMostStages, most));
  };
  const Json* list = config.find(key);
  if (list == nullptr) config.fail(key, "missing", "expected a list of whole numbers");
  if (count > 0 && list->is_number()) return std::vector<int>(count, config.required(key, most));
  if (!list->is_array() || list->empty() || list->size() > kMostStages) refuse();
  std::vector<int> found;
  for (const Json& one : *list) {
    if (!one.is_number_integer() || one < 1 || one > most) refuse();
    found.push_back(one.get<int>());
  }
  if (count > 0 && found.size() != count) refuse();
  return found;
}

std::vector<std::string> words(Config& config, const char* key) {
  const Json* list = config.find(key);
  const bool fine = list != nullptr && list->is_array() && !list->empty() && list->size() <= kMostStages &&
                    std::all_of(list->begin(), list->end(), [](const Json& one) { return one.is_string(); });
  if (!fine) config.fail(key, "is no such list", "expected the names of its blocks");
  return list->get<std::vector<std::string>>();
}

Workload read_convnext(Config& config, const Family& family) {
  ConvNext shape;
  const std::vector<int> widths = numbers(config, "hidden_sizes", 0, kMaxWidth);
  const std::vector<int> depths = numbers(config, "depths", widths.size(), kMostRepeats);
  shape.widths.assign(widths.begin(), widths.end());
  shape.depths.assign(depths.begin(), depths.end());
  shape.channels = config.integer("num_channels", 3, 1, 1024);
  shape.side = config.required("image_size", kMostPixels);
  shape.patch = config.required("patch_size", kMostPixels);
  shape.classes = classes_of(config);
  shape.response_norm = family.is.contains("response_norm");
  shape.layer_scale = !shape.response_norm && config.real("layer_scale_init_value", 1e-6, 0, 1e6) > 0;
  if (shape.side >> (widths.size() - 1) < shape.patch)
    config.fail("image_size", fmt::format("{}", shape.side),
                fmt::format("expected enough for {} stages", widths.size()));
  return convnext(shape);
}

// transformers' round_filters: to multiples of the divisor, not below 90%.
std::int64_t rounded_channels(double channels, int divisor) {
  const double near = std::floor((channels + divisor / 2.0) / divisor) * divisor;
  const double rounded = std::max<double>(divisor, near);
  return static_cast<std::int64_t>(rounded < 0.9 * channels ? rounded + divisor : rounded);
}

// Blocks that halve an odd side pad both ends (transformers' EfficientNetDepthwiseLayer); elsewhere these
// would round down, which no published configuration does.
void check_depthwise_padding(Config& config, const EfficientNet& shape) {
  std::vector<int> odd;
  std::int64_t side = (shape.side + 1) / 2;
  int block = 0;
  for (const EfficientNet::Stage& stage : shape.stages) {
    if (stage.stride > 1 && side % 2 == 1) odd.push_back(block);
    side = (side + stage.stride - 1) / stage.stride;
    block += stage.repeats;
  }
  const Json* list = config.find("depthwise_padding");
  const Json own = list == nullptr ? Json::array() : *list;
  if (own != Json(odd))
    config.fail("depthwise_padding", fmt::format("{:.60}", own.dump()),
                fmt::format("expected the blocks that halve an odd side, {}", Json(odd).dump()));
}

Workload read_efficientnet(Config& config) {
  EfficientNet shape;
  const double wide = config.real("width_coefficient", 2.0, 0.01, 100);
  const double deep = config.real("depth_coefficient", 3.1, 0.01, 100);
  const int divisor = config.integer("depth_divisor", 8, 1, 1024);
  const std::vector<int> in = numbers(config, "in_channels", 0, kMaxWidth);
  const auto list = [&](const char* key, int most) { return numbers(config, key, in.size(), most); };
  const std::vector<int> out = list("out_channels", kMaxWidth), kernels = list("kernel_sizes", 63),
                         strides = list("strides", 16), repeats = list("num_block_repeats", kMostRepeats),
                         expansions = list("expand_ratios", 1024);
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (kernels[i] % 2 == 0) config.fail("kernel_sizes", fmt::format("{}", kernels[i]), "expected odd ones");
    const double times = std::ceil(deep * repeats[i]);
    shape.stages.push_back({rounded_channels(in[i] * wide, divisor), rounded_channels(out[i] * wide, divisor),
                            kernels[i], strides[i], expansions[i], static_cast<int>(times)});
  }
  shape.channels = config.integer("num_channels", 3, 1, 1024);
  shape.side = config.required("image_size", kMostPixels);
  shape.stem = rounded_channels(32 * wide, divisor);
  shape.top = rounded_channels(1280 * wide, divisor);
  if (const int top = config.integer("hidden_dim", static_cast<int>(shape.top), 1, kMaxWidth);
      top != shape.top)
    config.fail("hidden_dim", fmt::format("{}", top),
                fmt::format("expected what the last convolution makes, {}", shape.top));
  shape.classes = classes_of(config);
  shape.squeeze = config.real("squeeze_expansion_ratio", 0.25, 1e-6, 1);
  if (shape.stages.front().in != shape.stem)
    config.fail("in_channels", fmt::format("{}", in.front()), "expected the stem's, 32, first");
  for (std::size_t i = 1; i < shape.stages.size(); ++i)
    if (shape.stages[i].in != shape.stages[i - 1].out)
      config.fail("in_channels", fmt::format("{}", in[i]), "expected what the stage before puts out");
  check_depthwise_padding(config, shape);
  return efficientnet(shape);
}

Workload read_unet(Config& config) {
  Unet shape;
  const std::vector<int> widths = numbers(config, "block_out_channels", 0, kMaxWidth);
  const std::vector<std::string> down = words(config, "down_block_types"),
                                 up = words(config, "up_block_types");
  const auto levels = widths.size();
  if (down.size() != levels)
    config.fail("down_block_types", "is no such list", fmt::format("expected {}", levels));
  if (up.size() != levels)
    config.fail("up_block_types", "is no such list", fmt::format("expected {}", levels));
  const std::vector<int> layers = numbers(config, "layers_per_block", levels, kMostRepeats);
  const std::vector<int> blocks = numbers(config, "transformer_layers_per_block", levels, kMostRepeats);
  const int groups = config.integer("norm_num_groups", 32, 1, kMaxWidth);
  const auto crosses = [&](const char* key, const std::string& type, std::string_view plain,
                           std::string_view cross) {
    if (type != plain && type != cross)
      config.fail(key, fmt::format("{:.40}", type), fmt::format("expected {} or {}", plain, cross));
    return type == cross;
  };
  for (std::size_t l = 0; l < levels; ++l) {
    if (widths[l] % groups != 0)
      config.fail("block_out_channels", fmt::format("{}", widths[l]),
                  "expected multiples of norm_num_groups");
    Unet::Level level;
    level.channels = widths[l];
    level.layers = layers[l];
    if (crosses("down_block_types", down[l], "DownBlock2D", "CrossAttnDownBlock2D"))
      level.transformers = blocks[l];
    if (crosses("up_block_types", up[levels - 1 - l], "UpBlock2D", "CrossAttnUpBlock2D"))
      level.up_transformers = blocks[l];
    shape.levels.push_back(level);
  }
  shape.middle_transformers = blocks.back();
  shape.in = config.required("in_channels", 1024);
  shape.out = config.required("out_channels", 1024);
  shape.side = config.required("sample_size", kMostPixels);
  if (shape.side % (std::int64_t{1} << std::min<std::size_t>(levels - 1, 30)) != 0)
    config.fail("sample_size", fmt::format("{}", shape.side),
                fmt::format("expected a multiple of 2^{}", levels - 1));
  shape.context = config.required("cross_attention_dim", kMaxWidth);
  shape.context_tokens = config.required("sample_text_tokens", kMostTokens);
  const std::string added = config.text("addition_embed_type", "");
  if (added == "text_time") {
    shape.added = config.required("projection_class_embeddings_input_dim", kMaxWidth);
  } else if (!added.empty()) {
    config.fail("addition_embed_type", fmt::format("{:.40}", added), "expected null or text_time");
  }
  return unet(shape);
}

Workload read_diffusion_transformer(Config& config) {
  DiffusionTransformer shape;
  shape.layers = config.required("num_layers", kMaxLayers);
  shape.heads = config.required("num_attention_heads", kMaxHeads);
  shape.head_dim = config.required("attention_head_dim", kMaxHeads);
  shape.in = config.required("in_channels", 1024);
  shape.out = config.integer("out_channels", static_cast<int>(shape.in), 1, 1024);
  shape.side = config.required("sample_size", kMostPixels);
  shape.patch = config.required("patch_size", kMostPixels);
  if (shape.side % shape.patch != 0)
    config.fail("patch_size", fmt::format("{}", shape.patch), "expected a divisor of sample_size");
  shape.classes = config.required("num_embeds_ada_norm", kMaxVocab);
  shape.own_embedders = true;
  return diffusion_transformer(shape);
}

Workload read_deberta(Config& config, const Family& family) {
  Deberta shape;
  shape.layers = config.required("num_hidden_layers", kMaxLayers);
  shape.hidden = config.required("hidden_size", kMaxWidth);
  shape.heads = config.required("num_attention_heads", kMaxHeads);
  if (shape.hidden % shape.heads != 0)
    config.fail("num_attention_heads",
                fmt::format("{} does not divide the width {}", shape.heads, shape.hidden),
                "expected a divisor of hidden_size");
  shape.ffn = config.required("intermediate_size", kMaxWidth);
  shape.vocab = config.required("vocab_size", kMaxVocab);
  shape.tokens = config.required("max_position_embeddings", kMostTokens);
  const bool second = family.is.contains("second_version");
  int farthest = config.integer("max_relative_positions", -1, -1, kMostTokens);
  if (farthest < 1) farthest = static_cast<int>(shape.tokens);
  if (second) farthest = config.integer("position_buckets", farthest, 1, kMostTokens);
  shape.distances = 2 * farthest;
  const Json* kinds = config.find("pos_att_type");
  std::string joined;
  if (kinds != nullptr && kinds->is_array()) {
    for (const Json& kind : *kinds) joined += kind.is_string() ? kind.get<std::string>() + "|" : "?";
  } else {
    joined = config.text("pos_att_type", "");
  }
  const bool of_queries = joined.find("c2p") != std::string::npos,
             of_keys = joined.find("p2c") != std::string::npos;
  if (!of_queries || !of_keys)
    config.fail("pos_att_type", fmt::format("{:.40}", joined), "expected c2p and p2c");
  if (config.boolean("position_biased_input", true)) shape.positions = shape.tokens;
  shape.types = config.integer("type_vocab_size", 0, 0, kMaxVocab);
  shape.convolution = second ? config.integer("conv_kernel_size", 0, 0, 1023) : 0;
  shape.shared_projections = second;
  shape.fused_projections = !second;
  shape.distance_norm = config.text("norm_rel_ebd", "none").find("layer_norm") != std::string::npos;
  if (second && !config.boolean("share_att_key", false))
    config.fail("share_att_key", "false",
                "expected true: matrices of positions of their own are the first version's");
  if (!config.boolean("relative_attention", false))
    config.fail("relative_attention", "false", "expected true");
  return deberta(shape);
}

using Reader = std::function<Workload(Config&, const Family&)>;

const std::map<std::string, Reader, std::less<>>& readers() {
  static const std::map<std::string, Reader, std::less<>> all = {
      {"convnext", read_convnext},
      {"efficientnet", [](Config& config, const Family&) { return read_efficientnet(config); }},
      {"unet", [](Config& config, const Family&) { return read_unet(config); }},
      {"diffusion_transformer",
       [](Config& config, const Family&) { return read_diffusion_transformer(config); }},
      {"deberta", read_deberta},
  };
  return all;
}

}  // namespace

bool is_network(std::string_view graph) {
  return readers().find(graph) != readers().end();
}

void read_network(Config& config, const Family& family, std::string_view file, Workload* workload) {
  config.take_defaults(family.defaults);
  check_usual(config, family);
  Workload made = readers().find(family.graph)->second(config, family);
  check_size(made.operators, file);
  workload->operators = std::move(made.operators);
  workload->layers = made.layers;
  workload->notes = family.notes;
  for (std::string& key : config.unread()) workload->ignored_keys.push_back(std::move(key));
}

}  // namespace orrery::internal
