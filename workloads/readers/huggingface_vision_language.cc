#include "workloads/readers/huggingface_vision_language.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "workloads/checks.h"
#include "workloads/networks/tower_builder.h"
#include "workloads/readers/huggingface_structure.h"

namespace orrery::internal {
namespace {

constexpr int kMaxPictureSide = 1 << 16;       // pixels
constexpr int kMaxSampleTokens = 1 << 22;      // of a sample
constexpr int kMaxImages = 1 << 12;            // of a sample
constexpr std::int64_t kMaxPatches = 1 << 22;  // of a sample

// What the tower makes: rows of the decoder's width, and further ones that its first layers add.
struct Pictures {
  TokenTensor tokens;
  std::vector<TokenTensor> into_layers;
};

class PictureTower {
 public:
  PictureTower(Config& model, Config& vision, const Family& family, std::int64_t decoder_width)
      : model_(model), vision_(vision), family_(family), decoder_width_(decoder_width) {
    images_ = model_.required("sample_images", kMaxImages);
  }

  Pictures clip();
  Pictures qwen();
  TowerBuilder& builder() { return builder_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  bool is(const char* fact) const { return family_.is.contains(fact); }
  std::int64_t patches_of_a_side(int image, int patch);
  void count(std::int64_t patches, std::int64_t tokens, int side);
  TowerBlock block_of(const char* width_key, std::int64_t width, const char* heads);
  TokenTensor merged(const std::string& name, const TokenTensor& in, std::int64_t unit, bool norm_behind);
  // Mean number of patches in the window of a patch: windows of `side` patches cut a picture from one corner.
  static std::int64_t patches_in_window(std::int64_t grid, std::int64_t side);

  Config& model_;
  Config& vision_;
  const Family& family_;
  const std::int64_t decoder_width_;
  std::int64_t images_ = 1;
  TowerBuilder builder_;
  std::vector<std::string> notes_;
};

std::int64_t PictureTower::patches_of_a_side(int image, int patch) {
  if (patch > image) vision_.fail("patch_size", fmt::format("{}", patch), "expected at most image_size");
  const std::int64_t side = image / patch;
  if (side * side * images_ > kMaxPatches)
    vision_.fail("patch_size", "makes too many patches", "expected larger ones");
  return side;
}

void PictureTower::count(std::int64_t patches, std::int64_t tokens, int side) {
  notes_.push_back(
      fmt::format("A sample has {} picture{} of {} x {} pixels, of {} patches and {} tokens each "
                  "(sample_images and sample_tokens in the configuration say otherwise).",
                  images_, images_ == 1 ? "" : "s", side, side, patches, tokens));
}

TowerBlock PictureTower::block_of(const char* width_key, std::int64_t width, const char* heads) {
  TowerBlock block;
  block.heads = vision_.required(heads, kMaxHeads);
  if (width % block.heads != 0)
    vision_.fail(heads, fmt::format("{} does not divide the width {}", block.heads, width),
                 fmt::format("expected a divisor of {}", width_key));
  block.head_dim = width / block.heads;
  return block;
}

// CLIP's tower, or SigLIP's, which has no class token and no norm in front; a perceptron on every patch.
Pictures PictureTower::clip() {
  const std::int64_t width = vision_.required("hidden_size", kMaxWidth);
  const int image = vision_.required("image_size", kMaxPictureSide);
  const int patch = vision_.required("patch_size", kMaxPictureSide);
  const std::int64_t channels = vision_.integer("num_channels", 3, 1, 1024);
  const std::int64_t side = patches_of_a_side(image, patch), patches = side * side;
  const bool siglip = vision_.text("model_type", "clip_vision_model") == "siglip_vision_model";
  const std::int64_t rows = patches + (siglip ? 0 : 1);
  TokenTensor x =
      builder_.project("vision.patches", {}, images_ * patches, channels * patch * patch, width, siglip);
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> trained;
  if (!siglip) trained.push_back({"vision.class_token", {width}});
  trained.push_back({"vision.positions.weight", {rows, width}});
  x = builder_.trained_rows("vision.positions", x, images_ * rows, std::move(trained));
  if (!siglip) x = builder_.norm("vision.pre_norm", x, true);

  TowerBlock block = block_of("hidden_size", width, "num_attention_heads");
  block.ffn = vision_.required("intermediate_size", kMaxWidth);
  block.window = images_ > 1 ? rows : 0;
  const int layers = vision_.required("num_hidden_layers", kMaxLayers);
  // The decoder reads what comes out of one of the layers, counted from 0 (none of them) or back from the
  // last.
  const int said = model_.integer("vision_feature_layer", -1, -layers - 1, layers);
  const int used = said < 0 ? layers + 1 + said : said;
  for (int i = 0; i < used; ++i) {
    if (i > 0) builder_.next_layer();
    x = builder_.block(fmt::format("vision.{}.", i), block, x, false);
  }
  const std::int64_t of_a_layer = 4 * (width * width + width) + 2 * width * block.ffn + block.ffn + 5 * width;
  notes_.push_back(fmt::format(
      "The pictures' tower ends after {} of its {} layers (vision_feature_layer {}); published weights have "
      "its other layers and last norm, too, {} parameters.",
      used, layers, said, (layers - used) * of_a_layer + 2 * width));

  const std::string kept = model_.text("vision_feature_select_strategy", "default");
  if (kept != "default" && kept != "full")
    model_.fail("vision_feature_select_strategy", kept, "expected default or full");
  const std::int64_t tokens = rows - (kept == "default" ? 1 : 0);
  count(patches, tokens, image);
  const bool bias = model_.boolean("multimodal_projector_bias", true);
  builder_.next_layer();
  x = builder_.project("projector.linear_1", x, images_ * tokens, width, decoder_width_, bias);
  x = builder_.activation("projector.activation", x, false);
  return {builder_.project("projector.linear_2", x, x.tokens, decoder_width_, decoder_width_, bias), {}};
}

std::int64_t PictureTower::patches_in_window(std::int64_t grid, std::int64_t side) {
  double squares = 0;
  for (std::int64_t at = 0; at < grid; at += side) {
    const auto part = static_cast<double>(std::min(side, grid - at));
    squares += part * part;
  }
  const double along = squares / static_cast<double>(grid);
  return std::max<std::int64_t>(1, std::llround(along * along));
}

// `unit` patches side by side, through a perceptron to one token.
TokenTensor PictureTower::merged(const std::string& name, const TokenTensor& in, std::int64_t unit,
                                 bool norm_behind) {
  const std::int64_t wide = unit * in.width, rows = in.tokens / unit;
  TokenTensor x = norm_behind ? TokenTensor{in.op, rows, wide} : in;
  x = builder_.norm(name + ".norm", x, !is("rms_norm"));
  x = builder_.project(name + ".fc1", x, rows, wide, wide, true);
  x = builder_.activation(name + ".activation", x, false);
  return builder_.project(name + ".fc2", x, rows, wide, decoder_width_, true);
}

// Qwen2-VL, arXiv 2409.12191, section 2.1; Qwen2.5-VL (windows, arXiv 2502.13923, section 2.1.1); Qwen3-VL
// (trained positions, and features of several layers: DeepStack, arXiv 2406.04334).
Pictures PictureTower::qwen() {
  const char* width_key = is("width_is_embed_dim") ? "embed_dim" : "hidden_size";
  const std::int64_t width = vision_.required(width_key, kMaxWidth);
  const char* out_key = is("width_is_embed_dim") ? "hidden_size" : "out_hidden_size";
  if (const int out = vision_.required(out_key, kMaxWidth); out != decoder_width_)
    vision_.fail(out_key, fmt::format("{}", out),
                 fmt::format("expected the decoder's width, {}", decoder_width_));
  const int image = model_.required("image_size", kMaxPictureSide);
  const int patch = vision_.required("patch_size", kMaxPictureSide);
  const std::int64_t merge = vision_.required("spatial_merge_size", 64);
  const std::int64_t channels =
      vision_.integer("in_channels", vision_.integer("in_chans", 3, 1, 1024), 1, 1024);
  const std::int64_t frames = vision_.required("temporal_patch_size", 64);
  const std::int64_t side = patches_of_a_side(image, patch) / merge * merge;
  if (side == 0)
    model_.fail("image_size", fmt::format("{}", image), fmt::format("expected at least {}", patch * merge));
  const std::int64_t patches = side * side;
  TokenTensor x = builder_.project("vision.patches", {}, images_ * patches, channels * frames * patch * patch,
                                   width, is("patch_bias"));
  if (is("trained_positions"))
    x = builder_.trained_rows(
        "vision.positions", x, x.tokens,
        {{"vision.positions.weight", {vision_.required("num_position_embeddings", kMaxPositions), width}}});
  TowerBlock block = block_of(width_key, width, "num_heads");
  block.ffn = vision_.find("mlp_ratio") != nullptr ? vision_.required("mlp_ratio", 1024) * width
                                                   : vision_.required("intermediate_size", kMaxWidth);
  block.rotary = true;
  block.rms_norm = is("rms_norm");
  block.gated = is("gated_ffn");
  const int layers = vision_.required("depth", kMaxLayers);
  const auto layers_of = [&](const char* key) {
    std::set<int> chosen;
    const Json* list = vision_.find(key);
    if (list == nullptr) return chosen;
    for (const Json& layer : *list) {
      if (!layer.is_number_integer() || layer < 0 || layer >= layers)
        vision_.fail(key, "is no list of the layers", "expected their numbers, from 0");
      chosen.insert(layer.get<int>());
    }
    return chosen;
  };
  const std::set<int> whole = layers_of("fullatt_block_indexes"),
                      deep = layers_of("deepstack_visual_indexes");
  const std::int64_t window = vision_.integer("window_size", 0, 0, kMaxPictureSide) / patch;
  const std::int64_t unit = merge * merge;
  Pictures made;
  std::vector<TokenTensor> features;
  for (int i = 0; i < layers; ++i) {
    if (i > 0) builder_.next_layer();
    block.window = images_ > 1 ? patches : 0;
    if (window > 0 && !whole.contains(i)) block.window = patches_in_window(side, window);
    x = builder_.block(fmt::format("vision.{}.", i), block, x, false);
    if (deep.contains(i)) features.push_back(x);
  }
  count(patches, patches / unit, static_cast<int>(side * patch));
  builder_.next_layer();
  for (std::size_t i = 0; i < features.size(); ++i)
    made.into_layers.push_back(merged(fmt::format("deepstack.{}", i), features[i], unit, true));
  made.tokens = merged("merger", x, unit, false);
  return made;
}

}  // namespace

bool read_vision_language(const Json& root, const Family& family, std::string_view text,
                          std::string_view file, Workload* workload) {
  Config config(root, text, 0, file);
  config.take_defaults(family.defaults);
  check_usual(config, family);
  const auto object = [&](const char* key) {
    const Json* found = config.find(key);
    if (found != nullptr && !found->is_object())
      config.fail(key, "is no object", "expected the configuration of one part");
    return found;
  };
  const Json* pictures = object("vision_config");
  if (pictures == nullptr) config.fail("vision_config", "missing", "expected the pictures' tower");
  const Json* words = object("text_config");
  const auto start = [&](const char* key) {
    return std::min(text.find(fmt::format("\"{}\"", key)), text.size());
  };
  // Older files have the decoder's fields beside the tower's object.
  Config own(words == nullptr ? root : *words, text, words == nullptr ? 0 : start("text_config"), file);
  const auto& families = huggingface_families();
  const auto said = family.set.find("text");
  const std::string usual = said == family.set.end() ? "" : said->get<std::string>();
  const std::string type = words == nullptr ? usual : own.text("model_type", usual);
  if (words == nullptr) {
    for (const auto& [key, why] : family.left_out) own.use(key);
    for (const char* key : {"vision_config", "vision_feature_layer", "vision_feature_select_strategy",
                            "sample_images", "sample_tokens", "image_size"})
      own.use(key);
  }
  Transformer decoder = read_transformer(own, type, workload);
  if (!own.in_file("tie_word_embeddings"))
    decoder.tied_embeddings = config.boolean("tie_word_embeddings", decoder.tied_embeddings);
  if (const std::string why = no_tower_because(decoder); !why.empty()) {
    workload->notes.push_back(
        fmt::format("The language model {}: it is planned by itself, without what reads pictures.", why));
    return false;
  }
  Config vision(*pictures, text, start("vision_config"), file);
  const std::string tower = vision.text("model_type", "");
  const auto row =
      families.find(family.set.contains("tower") ? family.set["tower"].get<std::string>() : tower);
  if (row == families.end() || row->second.graph != "picture_tower")
    vision.fail("model_type", tower.empty() ? "missing" : tower,
                "expected clip_vision_model or siglip_vision_model");
  vision.take_defaults(row->second.defaults);
  check_usual(vision, row->second);
  PictureTower reader(config, vision, row->second, decoder.hidden);
  const Pictures made = row->second.is.contains("merges") ? reader.qwen() : reader.clip();
  const std::int64_t tokens = config.required("sample_tokens", kMaxSampleTokens);
  if (tokens <= made.tokens.tokens)
    config.fail("sample_tokens", fmt::format("{}", tokens),
                fmt::format("expected more than the {} of its pictures", made.tokens.tokens));
  reader.builder().language_model(decoder, "language_model.", made.tokens, tokens, made.into_layers);
  reader.builder().finish(workload);
  workload->notes.insert(workload->notes.end(), family.notes.begin(), family.notes.end());
  workload->notes.insert(workload->notes.end(), reader.notes().begin(), reader.notes().end());
  workload->notes.push_back(
      fmt::format("A row is a sample of {} tokens; attention costs its two products, fused.", tokens));
  std::vector<Config*> parts = {&own, &vision};
  if (words != nullptr) parts.push_back(&config);
  for (Config* one : parts)
    for (std::string& key : one->unread()) workload->ignored_keys.push_back(std::move(key));
  return true;
}

}  // namespace orrery::internal
