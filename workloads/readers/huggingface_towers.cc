#include "workloads/readers/huggingface_towers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "workloads/checks.h"
#include "workloads/networks/tower_builder.h"

namespace orrery::internal {
namespace {

constexpr int kMaxSide = 1 << 16;         // pixels
constexpr int kMaxTowerTokens = 1 << 20;  // of a sample

class Towers {
 public:
  Towers(Config& config, const Family& family) : config_(config), family_(family) {}

  void encoder_decoder();
  void images(const std::string& prefix, TokenTensor* out);
  void classify_images();
  void texts(TokenTensor* out);
  void finish(Workload* workload);
  TowerBuilder& builder() { return builder_; }
  // The same graph, from another object of the configuration.
  Towers inside(Config& config) { return {config, family_, builder_}; }

 private:
  Towers(Config& config, const Family& family, TowerBuilder builder)
      : config_(config), family_(family), builder_(std::move(builder)) {}

  void read_mathematics();
  void check_activation();
  bool is(const char* fact) const { return family_.is.contains(fact); }
  std::string key(const std::string& name) const {
    const auto own = family_.keys.find(name);
    return own == family_.keys.end() ? name : own->second;
  }
  int number(const std::string& name, int most) { return config_.required(key(name), most); }
  TowerBlock block_of(const std::string& layers, std::int64_t width, const char* heads, const char* ffn);
  TokenTensor positions(const std::string& name, const TokenTensor& in);
  TokenTensor sound(std::int64_t width, std::int64_t tokens);
  TokenTensor encoder(const TokenTensor& in, int layers, const TowerBlock& block);

  Config& config_;
  const Family& family_;
  TowerBuilder builder_;
  std::vector<std::string> unexecuted_;  // keys
};

// ViTForImageClassification's names.
std::string vit_name(std::string name) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kNames = {{
      {"vision.patches.", "vit.embeddings.patch_embeddings.projection."},
      {"vision.class_token", "vit.embeddings.cls_token"},
      {"vision.positions.weight", "vit.embeddings.position_embeddings"},
      {"vision.final_norm.", "vit.layernorm."},
      {"norm1.", "layernorm_before."},
      {"norm2.", "layernorm_after."},
      {"query.", "attention.attention.query."},
      {"key.", "attention.attention.key."},
      {"value.", "attention.attention.value."},
      {"proj.", "attention.output.dense."},
      {"mlp_up.", "intermediate.dense."},
      {"mlp_down.", "output.dense."},
      {"vision.", "vit.encoder.layer."},
  }};
  for (const auto& [ours, theirs] : kNames)
    if (const auto at = name.find(ours); at != std::string::npos) name.replace(at, ours.size(), theirs);
  return name;
}

void Towers::finish(Workload* workload) {
  builder_.finish(workload);
  for (std::string& key : unexecuted_) workload->ignored_keys.push_back(std::move(key));
  if (family_.tensors != "vit") return;
  for (Operator& op : workload->operators)
    for (ParameterTensor& tensor : op.parameters) tensor.name = vit_name(std::move(tensor.name));
}

TowerBlock Towers::block_of(const std::string& layers, std::int64_t width, const char* heads,
                            const char* ffn) {
  TowerBlock block;
  block.heads = number(heads, kMaxHeads);
  const bool sized = config_.find(key("head_dim")) != nullptr;
  if (!sized && width % block.heads != 0)
    config_.fail(key(heads), fmt::format("{} does not divide the width {}", block.heads, width),
                 fmt::format("expected a divisor, of {}", layers));
  block.head_dim = sized ? number("head_dim", kMaxHeads) : width / block.heads;
  block.ffn = config_.find("mlp_ratio") != nullptr ? config_.required("mlp_ratio", 1024) * width
                                                   : number(ffn, kMaxWidth);
  block.rms_norm = is("rms_norm");
  block.post_norm = is("post_norm");
  block.biases = !is("unbiased");
  block.qkv_bias = config_.boolean("qkv_bias", true);
  block.key_bias = !is("unbiased_keys");
  block.layer_scale = is("layer_scale");
  block.gated = config_.text("feed_forward_proj", "relu").starts_with("gated");
  return block;
}

TokenTensor Towers::positions(const std::string& name, const TokenTensor& in) {
  const int offset = config_.integer("position_offset", 0, 0, 1024);
  TokenTensor out =
      builder_.trained_rows(name, in, in.tokens, {{name + ".weight", {in.tokens + offset, in.width}}});
  return is("embedding_norm") ? builder_.norm(name + "_norm", out, true) : out;
}

// Whisper's two convolutions, the second of stride 2.
TokenTensor Towers::sound(std::int64_t width, std::int64_t tokens) {
  const std::int64_t bins = number("num_mel_bins", kMaxWidth);
  TokenTensor x = builder_.project("encoder.conv1", {}, 2 * tokens, 3 * bins, width, true);
  x = builder_.activation("encoder.conv1_activation", x, false);
  x = builder_.project("encoder.conv2", x, tokens, 3 * width, width, true);
  return builder_.activation("encoder.conv2_activation", x, false);
}

TokenTensor Towers::encoder(const TokenTensor& in, int layers, const TowerBlock& block) {
  TokenTensor x = in;
  for (int i = 0; i < layers; ++i) {
    if (i > 0) builder_.next_layer();
    x = builder_.block(fmt::format("encoder.{}.", i), block, x, false);
    if (i == 0 && is("relative_positions"))
      builder_.parameter("encoder.relative_attention_bias.weight",
                         {number("relative_attention_num_buckets", kMaxHeads), block.heads});
  }
  return block.post_norm ? x : builder_.norm("encoder.final_norm", x, !block.rms_norm);
}

// "gated-gelu" of T5's kind, others' "gelu": no other is one that transformers has.
void Towers::check_activation() {
  for (const char* key : {"feed_forward_proj", "activation_function"}) {
    if (config_.find(key) == nullptr) continue;
    const std::string said = config_.text(key, "");
    const bool gated = std::string_view(key) == "feed_forward_proj" && said.starts_with("gated-");
    if (!activation_named(gated ? std::string_view(said).substr(6) : std::string_view(said)))
      config_.fail(key, fmt::format("'{:.40}' is not known", said), "expected a gelu, silu or relu");
  }
}

void Towers::encoder_decoder() {
  check_activation();
  const std::int64_t width = number("d_model", kMaxWidth), vocab = number("vocab_size", kMaxVocab);
  const std::int64_t source = number("encoder_positions", kMaxTowerTokens);
  const std::int64_t target = number("decoder_positions", kMaxTowerTokens);
  const int layers = number("encoder_layers", kMaxLayers);
  const int decoder_layers = config_.integer(key("decoder_layers"), layers, 1, kMaxLayers);
  const TowerBlock encoder_block =
      block_of("the encoder", width, "encoder_attention_heads", "encoder_ffn_dim");
  const TowerBlock decoder_block =
      block_of("the decoder", width, "decoder_attention_heads", "decoder_ffn_dim");
  const bool hears = is("mel");
  // All tables stand at the start: what is shared with them is the head alone.
  TokenTensor words;
  if (!hears) words = builder_.lookup("shared", vocab, width, source);
  TokenTensor answer = hears ? builder_.lookup("shared", vocab, width, target)
                             : builder_.lookup("decoder.tokens", vocab, width, target, "shared.weight");
  TokenTensor x = hears ? sound(width, source) : words;
  if (is("learned_positions")) {
    x = positions("encoder.positions", x);
    answer = positions("decoder.positions", answer);
  }
  const TokenTensor memory = encoder(x, layers, encoder_block);
  x = answer;
  for (int i = 0; i < decoder_layers; ++i) {
    builder_.next_layer();
    x = builder_.block(fmt::format("decoder.{}.", i), decoder_block, x, true, &memory);
    if (i == 0 && is("relative_positions"))
      builder_.parameter("decoder.relative_attention_bias.weight",
                         {number("relative_attention_num_buckets", kMaxHeads), decoder_block.heads});
  }
  if (!decoder_block.post_norm) x = builder_.norm("decoder.final_norm", x, !decoder_block.rms_norm);
  const bool tied = config_.boolean("tie_word_embeddings", true);
  builder_.loss({builder_.project("head", x, target, width, vocab, false, tied ? "shared.weight" : "")});
}

void Towers::images(const std::string& prefix, TokenTensor* out) {
  const std::int64_t width = number("hidden_size", kMaxWidth);
  const std::int64_t image = number("image_size", kMaxSide), patch = number("patch_size", kMaxSide);
  const std::int64_t channels = config_.integer("num_channels", 3, 1, 1024);
  if (patch > image) config_.fail("patch_size", fmt::format("{}", patch), "expected at most image_size");
  const std::int64_t side = image / patch, tokens = side * side + 1;
  if (tokens > kMaxTowerTokens) config_.fail("patch_size", "makes too many patches", "expected larger ones");
  std::vector<std::string> others;
  if (is("mask_token")) others.emplace_back("mask_token");
  TokenTensor x = builder_.patches(prefix, channels, image, patch, width, !is("unbiased_patches"), others);
  if (is("pre_norm_of_patches")) x = builder_.norm(prefix + "pre_norm", x, true);
  const int layers = number("num_hidden_layers", kMaxLayers);
  const TowerBlock block = block_of("the tower", width, "num_attention_heads", "intermediate_size");
  for (int i = 0; i < layers; ++i) {
    if (i > 0) builder_.next_layer();
    x = builder_.block(fmt::format("{}{}.", prefix, i), block, x, false);
  }
  *out = builder_.norm(prefix + "final_norm", x, true);
}

// What a classifier computes beyond its dimensions. What is not executed counts as not understood.
void Towers::read_mathematics() {
  static const std::map<std::string, Activation, std::less<>> activations = {
      {"gelu", Activation::gelu_erf}, {"gelu_new", Activation::gelu}, {"gelu_pytorch_tanh", Activation::gelu},
      {"relu", Activation::relu},     {"silu", Activation::silu},     {"swish", Activation::silu}};
  const auto known = activations.find(config_.text("hidden_act", "gelu"));
  if (known == activations.end()) unexecuted_.emplace_back("hidden_act");
  for (const char* key : {"hidden_dropout_prob", "attention_probs_dropout_prob"})
    if (config_.real(key, 0, 0, 1) > 0) unexecuted_.emplace_back(key);
  // Below what a double has of 1 it would be no number that a norm adds.
  const double epsilon = config_.real("layer_norm_eps", 1e-12, 1e-20, 0.1);
  builder_.set_mathematics(epsilon, known == activations.end() ? Activation::gelu_erf : known->second);
}

void Towers::classify_images() {
  TokenTensor x;
  if (is("classifier")) read_mathematics();
  images("vision.", &x);
  if (!is("classifier")) return builder_.loss({x});
  builder_.loss({builder_.project("classifier", x, 1, x.width, classes_of(config_), true)});
}

void Towers::texts(TokenTensor* out) {
  const std::int64_t width = number("hidden_size", kMaxWidth);
  const int layers = number("num_hidden_layers", kMaxLayers);
  const TowerBlock block = block_of("the texts' tower", width, "num_attention_heads", "intermediate_size");
  TokenTensor x = builder_.lookup("text.tokens", number("vocab_size", kMaxVocab), width,
                                  number("max_position_embeddings", kMaxTowerTokens));
  x = positions("text.positions", x);
  for (int i = 0; i < layers; ++i) {
    if (i > 0) builder_.next_layer();
    x = builder_.block(fmt::format("text.{}.", i), block, x, true);
  }
  *out = builder_.norm("text.final_norm", x, true);
}

const Json& nested(Config& config, const char* key) {
  const Json* found = config.find(key);
  if (found == nullptr || !found->is_object())
    config.fail(key, "missing", "expected the configuration of one tower");
  return *found;
}

void two_towers(Config& config, const Family& family, std::string_view text, std::string_view file,
                Workload* workload) {
  const auto part = [&](const char* key) {
    Config one(nested(config, key), text, std::min(text.find(fmt::format("\"{}\"", key)), text.size()), file);
    one.take_defaults(family.defaults);
    check_usual(one, family);
    return one;
  };
  Config words = part("text_config"), pictures = part("vision_config");
  TokenTensor text_out, image_out;
  Towers of_texts(words, family);
  of_texts.texts(&text_out);
  of_texts.builder().next_layer();
  Towers of_images = of_texts.inside(pictures);
  of_images.images("vision.", &image_out);
  TowerBuilder& builder = of_images.builder();
  const int width = config.required("projection_dim", kMaxWidth);
  const TokenTensor a = builder.project("text_projection", text_out, 1, text_out.width, width, false);
  const TokenTensor b = builder.project("visual_projection", image_out, 1, image_out.width, width, false);
  builder.loss({a, b});
  builder.parameter("logit_scale", {1});
  of_images.finish(workload);
  for (Config* one : {&words, &pictures})
    for (std::string& key : one->unread()) workload->ignored_keys.push_back(std::move(key));
}

}  // namespace

std::int64_t classes_of(Config& config) {
  const Json* labels = config.find("id2label");
  const bool named = labels != nullptr && labels->is_object() && !labels->empty();
  const std::int64_t names = named ? static_cast<std::int64_t>(labels->size()) : 1000;
  const std::int64_t classes = config.integer("num_labels", static_cast<int>(names), 1, kMaxVocab);
  if (named && classes != names)
    config.fail("num_labels", fmt::format("{}, where id2label names {}", classes, names), "expected as many");
  return classes;
}

void check_size(const std::vector<Operator>& operators, std::string_view file) {
  double parameters = 0;
  for (const Operator& op : operators)
    for (const ParameterTensor& tensor : op.parameters) {
      double elements = 1;
      for (const std::int64_t size : tensor.shape) elements *= static_cast<double>(size);
      parameters += elements;
    }
  if (!(parameters <= kMaxParameters))
    throw UserError(file, 0, fmt::format("makes {:.3g} parameters", parameters),
                    fmt::format("expected at most {:.0g}", kMaxParameters));
}

void read_towers(Config& config, const Family& family, std::string_view text, std::string_view file,
                 Workload* workload) {
  config.take_defaults(family.defaults);
  check_usual(config, family);
  if (family.graph == "two_towers") {
    two_towers(config, family, text, file, workload);
  } else {
    Towers towers(config, family);
    if (family.graph == "images") {
      towers.classify_images();
    } else {
      towers.encoder_decoder();
    }
    towers.finish(workload);
  }
  check_size(workload->operators, file);
  workload->notes = family.notes;
  workload->notes.emplace_back(
      "A row is a sample of the configuration's own lengths; attention costs its two products, fused.");
  for (std::string& key : config.unread()) workload->ignored_keys.push_back(std::move(key));
}

}  // namespace orrery::internal
