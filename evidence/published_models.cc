#include "evidence/published_models.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "evidence/published_rows.h"
#include "workloads/readers/catalog.h"

namespace orrery::planner {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

enum class Family { gpt, mpt, llama, nemotron, mixture };

// Facts of published configurations (Hugging Face config.json, or the paper where there is none), by a part
// of the name in lower case. Dimensions of 0 are the row's. The first match counts.
struct Facts {
  std::string_view word;
  Family family;
  int layers, hidden, heads, kv_heads, ffn, vocab;
  int experts = 0, active = 0, expert_ffn = 0, shared_ffn = 0, dense_layers = 0;
  bool latent = false;
  int multi_token = 0;
  int period = 1;
};

constexpr std::array<Facts, 23> kFacts = {{
    {"deepseekv3 (w/o mtp)", Family::mixture, 61, 7168, 128, 128, 18432, 129280, 256, 8, 2048, 2048, 3, true,
     0},
    {"deepseekv3", Family::mixture, 61, 7168, 128, 128, 18432, 129280, 256, 8, 2048, 2048, 3, true, 1},
    {"deepseek v3", Family::mixture, 61, 7168, 128, 128, 18432, 129280, 256, 8, 2048, 2048, 3, true, 1},
    {"deepseek-v3", Family::mixture, 61, 7168, 128, 128, 18432, 129280, 256, 8, 2048, 2048, 3, true, 0},
    {"deepseek-v2", Family::mixture, 60, 5120, 128, 128, 12288, 102400, 160, 6, 1536, 3072, 1, true, 0},
    {"kimi", Family::mixture, 61, 7168, 64, 64, 18432, 163840, 384, 8, 2048, 2048, 1, true, 0},
    {"gpt oss 120b", Family::mixture, 36, 2880, 64, 8, 2880, 201088, 128, 4, 2880, 0, 0, false, 0},
    {"qwen3_30b", Family::mixture, 48, 2048, 32, 4, 6144, 151936, 128, 8, 768, 0, 0, false, 0},
    {"qwen3_235b", Family::mixture, 94, 4096, 64, 4, 12288, 151936, 128, 8, 1536, 0, 0, false, 0},
    {"mixtral-8x7", Family::mixture, 32, 4096, 32, 8, 14336, 32000, 8, 2, 14336, 0, 0, false, 0},
    {"mixtral 8x7", Family::mixture, 32, 4096, 32, 8, 14336, 32000, 8, 2, 14336, 0, 0, false, 0},
    {"mixtral-8x22", Family::mixture, 56, 6144, 48, 8, 16384, 32768, 8, 2, 16384, 0, 0, false, 0},
    {"mixtral 8x22", Family::mixture, 56, 6144, 48, 8, 16384, 32768, 8, 2, 16384, 0, 0, false, 0},
    {"grok", Family::mixture, 64, 6144, 48, 8, 32768, 131072, 8, 2, 32768, 0, 0, false, 0},
    // Llama 4 Maverick: experts in every second layer, top 1 of 128 and a shared expert of 8192.
    {"llama4 maverick", Family::mixture, 48, 5120, 40, 8, 16384, 202048, 128, 1, 8192, 8192, 0, false, 0, 2},
    {"llama2", Family::llama, 0, 0, 0, 0, 0, 32000},
    {"llama-2", Family::llama, 0, 0, 0, 0, 0, 32000},
    {"llama", Family::llama, 0, 0, 0, 0, 0, 128256},
    {"qwen2.5 7b", Family::llama, 28, 3584, 28, 4, 18944, 152064},
    {"qwen2.5 32b", Family::llama, 64, 5120, 40, 8, 27648, 152064},
    {"nemotron", Family::nemotron, 0, 0, 0, 0, 0, 256000},
    {"mpt", Family::mpt, 0, 0, 0, 0, 0, 50368},
    {"transgan", Family::mixture, 0, 0, 0, 0, 0, 0},
}};

// Models of layers that are not all alike, by a part of the name: the catalog has them.
struct Whole {
  std::string_view word, catalog;
  int multi_token = 0;
};
constexpr std::array<Whole, 4> kWhole = {{
    {"nemotron-h 56b", "nemotron-h-56b"},
    {"nemotron_3_nano", "nemotron-3-nano"},
    // mtp_num_layers = 2, "*E" each (nemotron_h_provider.py).
    {"nemotron_3_super", "nemotron-3-super", 2},
    {"nemotron v3 super", "nemotron-3-super"},
}};

// GPT-OSS's experts have biases; those of what goes out are added by expert (program/operator_work.cc).
void add_expert_biases(std::vector<Operator>* operators) {
  for (Operator& op : *operators) {
    if (op.kind != OperatorKind::expert_linear || op.split != TensorSplit::row) continue;
    ParameterTensor bias = op.parameters.back();
    bias.name += ".bias";
    bias.shape = {bias.shape[0], bias.shape[1]};
    bias.split_dim = -1;
    op.parameters.push_back(bias);
  }
}

}  // namespace

Workload published_workload(const PublishedModel& model) {
  Facts facts{"", Family::gpt, 0, 0, 0, 0, 0, 51200};  // GPT-2's vocabulary, padded to 1,024
  const std::string name = lower(model.name);
  for (const Whole& known : kWhole) {
    if (name.find(known.word) == std::string::npos) continue;
    Workload workload = load_workload(std::string(known.catalog));
    workload.name = model.name;
    workload.default_seq_len = model.seq_len;
    workload.transformer->multi_token_layers = known.multi_token;
    if (known.multi_token > 0) workload.transformer->multi_token_pattern = "*E";
    workload.operators = transformer_operators(*workload.transformer);
    return workload;
  }
  for (const Facts& known : kFacts) {
    if (name.find(known.word) == std::string::npos) continue;
    facts = known;
    break;
  }
  if (facts.family == Family::mixture && facts.experts == 0)
    throw Unreadable{"no transformer that the layer graph knows: '" + model.name + "'", false};
  const auto pick = [](int stated, int known) { return stated > 0 ? stated : known; };
  Transformer t;
  t.layers = pick(model.layers, facts.layers);
  t.hidden = pick(model.hidden, facts.hidden);
  t.heads = pick(model.heads, facts.heads);
  if (t.layers == 0 || t.hidden == 0 || t.heads == 0)
    throw Unreadable{"layers, hidden size or heads are not stated", true};
  if (t.hidden % t.heads != 0 && facts.family != Family::mixture)
    throw Unreadable{"the heads do not divide the hidden size", false};
  t.kv_heads = pick(model.kv_heads, pick(facts.kv_heads, t.heads));
  t.ffn_hidden = pick(model.ffn_hidden, pick(facts.ffn, 4 * t.hidden));
  t.vocab = pick(model.vocab, facts.vocab);
  t.head_dim = t.hidden / t.heads;
  t.max_positions = std::max(1, model.seq_len);
  switch (facts.family) {
    case Family::gpt:
      t.family = "megatron";
      t.learned_positions = true;
      t.tied_embeddings = true;
      t.qkv_bias = t.linear_bias = true;
      break;
    case Family::mpt:
      t.family = "megatron";
      t.tied_embeddings = true;
      t.learned_positions = true;
      break;
    case Family::nemotron:
      t.family = "megatron";
      t.activation = Activation::relu;  // squared
      break;
    case Family::llama:
    case Family::mixture:
      t.family = "llama";
      t.gated_ffn = true;
      t.activation = Activation::silu;
      t.norm = NormKind::rms_norm;
      break;
  }
  if (facts.experts > 0) {
    t.family = facts.latent ? "deepseek_v3" : "mixtral";
    MixtureOfExperts moe;
    moe.experts = facts.experts;
    moe.experts_per_token = facts.active;
    moe.expert_ffn_hidden = facts.expert_ffn;
    moe.shared_ffn_hidden = facts.shared_ffn;
    moe.first_dense_layers = std::min(facts.dense_layers, t.layers - 1);
    // SimuMax's launcher makes one layer of a truncated model dense, whatever the model has
    // (simu_tools/megatron_scripts/scripts/run_pretrain_deepseekv2.sh @ 1b8ca90bec: MOE_LAYER_FREQ).
    if (name.find("truncated") != std::string::npos) moe.first_dense_layers = 1;
    moe.layer_period = facts.period;
    t.moe = moe;
    t.multi_token_layers = facts.multi_token;
    if (facts.latent) t.mla = LatentAttention{1536, 512, 128, 64, 128};
    if (name.find("qwen3") != std::string::npos) t.head_dim = 128;
    if (name.find("gpt oss") != std::string::npos) {
      t.head_dim = 64;
      t.activation = Activation::gelu;
    }
  }
  Workload workload;
  workload.name = model.name;
  workload.transformer = t;
  workload.layers = t.layers;
  workload.default_seq_len = model.seq_len;
  workload.operators = transformer_operators(t);
  if (name.find("gpt oss") != std::string::npos) add_expert_biases(&workload.operators);
  return workload;
}

}  // namespace orrery::planner
