// The model of train.py: only what the plan's transformer has is written out.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "handover/export_common.h"
#include "handover/torchrun_script.h"

namespace orrery::planner {
namespace {

std::string foreign_part(const Transformer& m) {
  if (m.moe) return "experts";
  if (!m.layer_pattern.empty() || m.state_space) return "layers of several kinds";
  if (m.mla) return "latent attention";
  if (m.attention_pattern.find('c') != std::string::npos) return "attention in chunks";
  if (m.attention_gate || m.attention_sinks) return "gates or sinks of attention";
  if (m.multi_token_layers > 0) return "prediction of several tokens";
  if (m.pooler) return "a pooler";
  if (m.qk_norm && m.norm == NormKind::layer_norm) return "layer norms of queries and keys";
  return "";
}

const char* truth(bool value) {
  return value ? "True" : "False";
}

int rotary_width(const Transformer& m) {
  return m.learned_positions ? 0 : static_cast<int>(m.rotary_fraction * m.head_dim);
}

// One tensor q|k|v, by head (1) or side by side (3); 0: three tensors. As the checkpoint has it.
int fused_parts(const Workload& workload) {
  for (const Operator& op : workload.operators) {
    if (op.name != "h.0.qkv") continue;
    const ParameterTensor& first = op.parameters.empty() ? op.frozen.front() : op.parameters.front();
    const Transformer& m = *workload.transformer;
    const std::int64_t all = static_cast<std::int64_t>(m.heads + 2 * m.kv_heads) * m.head_dim;
    return std::find(first.shape.begin(), first.shape.end(), all) == first.shape.end() ? 0
                                                                                       : first.split_parts;
  }
  return 0;
}

std::string constants(const Plan& plan) {
  const Transformer& m = *plan.job->workload.transformer;
  std::string text = fmt::format(
      "LAYERS, HIDDEN, FFN, VOCAB = {}, {}, {}, {}\nHEADS, KV_HEADS, HEAD_DIM = {}, {}, {}\nEPSILON = {}\n",
      m.layers, m.hidden, m.ffn_hidden, m.vocab, m.heads, m.kv_heads, m.head_dim, m.norm_epsilon);
  if (m.learned_positions) text += fmt::format("POSITIONS = {}\n", m.max_positions + m.position_offset);
  const RotaryScaling& rope = m.rotary_scaling;
  if (rotary_width(m) > 0)
    text += fmt::format("ROTARY, THETA = {}, {:.0f}  # elements of each head that turn\n", rotary_width(m),
                        m.rope_theta);
  if (rope.kind == RopeScaling::linear) text += fmt::format("ROTARY_FACTOR = {}\n", rope.factor);
  if (rope.kind == RopeScaling::llama3)
    text += fmt::format("ROTARY_FACTOR, ROTARY_LOW, ROTARY_HIGH, ROTARY_ORIGINAL = {}, {}, {}, {}\n",
                        rope.factor, rope.low_frequency, rope.high_frequency, rope.original_positions);
  if (m.sliding_window > 0) {
    text += "WINDOWS = [";
    for (int layer = 0; layer < m.layers; ++layer)
      text += fmt::format("{}{}", layer > 0 ? ", " : "", m.layer_window(layer));
    text += "]  # tokens that each layer's queries look back on, 0: all\n";
  }
  return text;
}

std::string norm_class(const Transformer& m) {
  std::string text =
      "\n\nclass Norm(nn.Module):\n"
      "    def __init__(self, width):\n"
      "        super().__init__()\n"
      "        self.weight = nn.Parameter(torch.ones(width))\n";
  if (m.norm == NormKind::layer_norm) {
    if (!m.unbiased_norm) text += "        self.bias = nn.Parameter(torch.zeros(width))\n";
    return text + fmt::format(
                      "\n    def forward(self, x):\n"
                      "        return F.layer_norm(x, x.shape[-1:], self.weight, {}, EPSILON)\n",
                      m.unbiased_norm ? "None" : "self.bias");
  }
  return text +
         "\n    def forward(self, x):\n"
         "        y = x.float()\n"
         "        return (self.weight * (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + "
         "EPSILON))).to(x.dtype)\n";
}

std::string rotary_function(const Transformer& m) {
  if (rotary_width(m) == 0) return "";
  std::string text =
      "\n\ndef rotate(x):\n"
      "    \"\"\"x: batch, heads, length, elements; the first ROTARY of each head turn.\"\"\"\n"
      "    wave = THETA ** (-torch.arange(0, ROTARY, 2, device=x.device).float() / ROTARY)\n";
  if (m.rotary_scaling.kind == RopeScaling::linear) text += "    wave = wave / ROTARY_FACTOR\n";
  if (m.rotary_scaling.kind == RopeScaling::llama3)
    text +=
        "    turns = ROTARY_ORIGINAL * wave / (2 * math.pi)\n"
        "    kept = ((turns - ROTARY_LOW) / (ROTARY_HIGH - ROTARY_LOW)).clamp(0, 1)\n"
        "    wave = wave * (kept + (1 - kept) / ROTARY_FACTOR)\n";
  text +=
      "    angle = torch.arange(x.shape[-2], device=x.device)[:, None] * wave\n"
      "    a, b = x[..., :ROTARY].float().chunk(2, -1)\n"
      "    turned = [a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()]\n";
  if (rotary_width(m) < m.head_dim)
    return text + "    return torch.cat([*turned, x[..., ROTARY:].float()], -1).to(x.dtype)\n";
  return text + "    return torch.cat(turned, -1).to(x.dtype)\n";
}

std::string attention_function(const Plan& plan) {
  const Transformer& m = *plan.job->workload.transformer;
  const bool window = m.sliding_window > 0;
  const std::string arguments = window ? "q, k, v, window" : "q, k, v";
  std::string text = "\n\ndef attend(" + arguments + "):\n";
  const std::string mask = fmt::format(
      "    query = torch.arange(q.shape[-2], device=q.device)[:, None]\n"
      "    key = torch.arange(k.shape[-2], device=q.device)[None, :]\n"
      "    seen = {}\n",
      !window           ? (m.bidirectional ? "key >= 0" : "key <= query")
      : m.bidirectional ? "((query - key).abs() <= window // 2) | (window == 0)"
                        : "(key <= query) & ((key > query - window) | (window == 0))");
  const char* const shared = "    k, v = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (k, v))\n";
  if (plan.job->training.fused_attention) {
    if (window) text += mask;
    const std::string seen = window ? ", attn_mask=seen" : m.bidirectional ? "" : ", is_causal=True";
    return text + fmt::format("    return F.scaled_dot_product_attention(q, k, v{}{})\n", seen,
                              m.kv_heads != m.heads ? ", enable_gqa=True" : "");
  }
  if (m.kv_heads != m.heads) text += shared;
  if (window || !m.bidirectional) text += mask;
  text += "    scores = q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM)\n";
  if (window || !m.bidirectional) text += "    scores = scores.masked_fill(~seen, -math.inf)\n";
  return text + "    return torch.softmax(scores.float(), -1).to(v.dtype) @ v\n";
}

std::string block_members(const Plan& plan, const Transformer& m) {
  std::string text;
  const auto member = [&](const std::string& name, const std::string& made) {
    text += "        self." + name + " = " + made + "\n";
  };
  const auto linear = [&](const std::string& name, const std::string& in, const std::string& out, bool bias) {
    member(name, fmt::format("nn.Linear({}, {}, bias={})", in, out, truth(bias)));
  };
  const bool before = !m.post_norm && !m.no_input_norms;
  if (m.sliding_window > 0) member("window", "WINDOWS[layer]");
  if (m.first_norm_absent && before)
    text += "        if layer > 0:\n            self.norm1 = Norm(HIDDEN)\n";
  else if (before || m.post_norm)
    member("norm1", "Norm(HIDDEN)");
  if (fused_parts(plan.job->workload) > 0) {
    linear("qkv", "HIDDEN", "(HEADS + 2 * KV_HEADS) * HEAD_DIM", m.qkv_bias);
  } else {
    linear("q", "HIDDEN", "HEADS * HEAD_DIM", m.qkv_bias);
    linear("k", "HIDDEN", "KV_HEADS * HEAD_DIM", m.qkv_bias);
    linear("v", "HIDDEN", "KV_HEADS * HEAD_DIM", m.qkv_bias);
  }
  if (m.qk_norm && !m.qk_norm_absent_weights) {
    member("q_norm", m.qk_norm_whole ? "Norm(HEADS * HEAD_DIM)" : "Norm(HEAD_DIM)");
    member("k_norm", m.qk_norm_whole ? "Norm(KV_HEADS * HEAD_DIM)" : "Norm(HEAD_DIM)");
  }
  linear("proj", "HEADS * HEAD_DIM", "HIDDEN", m.linear_bias || m.proj_bias);
  if (m.branch_norms) member("norm1_after", "Norm(HIDDEN)");
  if ((before && !(m.parallel_residual && m.single_norm)) || m.post_norm) member("norm2", "Norm(HIDDEN)");
  const bool bias = m.linear_bias || m.mlp_bias;
  if (m.gated_ffn) linear("gate", "HIDDEN", "FFN", bias);
  linear("up", "HIDDEN", "FFN", bias);
  linear("down", "FFN", "HIDDEN", bias);
  if (m.branch_norms) member("norm2_after", "Norm(HIDDEN)");
  return text;
}

std::string attention_method(const Plan& plan, const Transformer& m) {
  std::string text = "\n    def attention(self, x):\n        batch, length = x.shape[:2]\n";
  const int parts = fused_parts(plan.job->workload);
  if (parts == 3) {
    text += "        q, k, v = self.qkv(x).chunk(3, -1)\n";
  } else if (parts == 1) {
    text +=
        "        # Queries, key and value of each group of heads stand together.\n"
        "        groups = self.qkv(x).view(batch, length, KV_HEADS, -1, HEAD_DIM)\n"
        "        q, k, v = (part.flatten(2) for part in (groups[..., :-2, :], groups[..., -2, :], "
        "groups[..., "
        "-1, :]))\n";
  } else {
    text += "        q, k, v = self.q(x), self.k(x), self.v(x)\n";
  }
  const bool weights = m.qk_norm && !m.qk_norm_absent_weights;
  if (weights && m.qk_norm_whole) text += "        q, k = self.q_norm(q), self.k_norm(k)\n";
  text +=
      "        q, k, v = (part.reshape(batch, length, -1, HEAD_DIM).transpose(1, 2) for part in (q, k, v))\n";
  if (weights && !m.qk_norm_whole) text += "        q, k = self.q_norm(q), self.k_norm(k)\n";
  if (rotary_width(m) > 0) text += "        q, k = rotate(q), rotate(k)\n";
  const std::string arguments = m.sliding_window > 0 ? "q, k, v, self.window" : "q, k, v";
  text += plan.choices.recompute == Recompute::selective
              ? "        y = checkpoint(attend, " + arguments + ", use_reentrant=False)  # recomputed\n"
              : "        y = attend(" + arguments + ")\n";
  return text + "        return self.proj(y.transpose(1, 2).flatten(2))\n";
}

std::string activation(const Transformer& m, const std::string& of) {
  switch (m.activation) {
    case Activation::gelu:
      return "F.gelu(" + of + ", approximate=\"tanh\")";
    case Activation::gelu_erf:
      return "F.gelu(" + of + ")";
    case Activation::silu:
      return "F.silu(" + of + ")";
    case Activation::relu:
      return "F.relu(" + of + ")";
  }
  throw InternalError("unknown activation");
}

std::string forward_method(const Transformer& m) {
  std::string text = "\n    def forward(self, x):\n";
  if (m.post_norm)
    return text +
           "        x = self.norm1(x + self.attention(x))\n"
           "        return self.norm2(x + self.mlp(x))\n";
  const bool before = !m.no_input_norms;
  std::string first = before ? "self.norm1(x)" : "x";
  if (before && m.first_norm_absent) {
    text += "        h = self.norm1(x) if hasattr(self, \"norm1\") else x\n";
    first = "h";
  }
  if (m.parallel_residual && m.single_norm) {
    if (first != "h") text += "        h = " + first + "\n";
    return text + "        return x + self.attention(h) + self.mlp(h)\n";
  }
  if (m.parallel_residual)
    return text + "        return x + self.attention(" + first + ") + self.mlp(self.norm2(x))\n";
  const auto after = [&](const char* norm, const std::string& branch) {
    return m.branch_norms ? std::string("self.") + norm + "(" + branch + ")" : branch;
  };
  text += "        x = x + " + after("norm1_after", "self.attention(" + first + ")") + "\n";
  return text + "        return x + " +
         after("norm2_after", before ? "self.mlp(self.norm2(x))" : "self.mlp(x)") + "\n";
}

std::string block_class(const Plan& plan, const Transformer& m) {
  std::string text =
      "\n\nclass Block(nn.Module):\n"
      "    def __init__(self, layer):\n"
      "        super().__init__()\n" +
      block_members(plan, m) + attention_method(plan, m);
  text += "\n    def mlp(self, x):\n        return self.down(";
  text +=
      m.gated_ffn ? activation(m, "self.gate(x)") + " * self.up(x))\n" : activation(m, "self.up(x)") + ")\n";
  return text + forward_method(m);
}

std::string model_class(const Plan& plan, const Transformer& m) {
  std::string text =
      "\n\nclass Model(nn.Module):\n"
      "    def __init__(self):\n"
      "        super().__init__()\n"
      "        self.tokens = nn.Embedding(VOCAB, HIDDEN)\n";
  if (m.learned_positions) text += "        self.positions = nn.Embedding(POSITIONS, HIDDEN)\n";
  if (m.token_types > 0)
    text += fmt::format("        self.types = nn.Embedding({}, HIDDEN)\n", m.token_types);
  const bool embedding_norm = m.post_norm || m.embedding_norm;
  if (embedding_norm) text += "        self.embedding_norm = Norm(HIDDEN)\n";
  text += "        self.layers = nn.ModuleList(Block(layer) for layer in range(LAYERS))\n";
  const bool final_norm = m.final_norm && !m.post_norm;
  if (final_norm) text += "        self.final_norm = Norm(HIDDEN)\n";
  if (m.mlm_head)
    text += fmt::format(
        "        self.head_transform = nn.Linear(HIDDEN, HIDDEN, bias={})\n"
        "        self.head_norm = Norm(HIDDEN)\n",
        truth(!m.unbiased_transform));
  const bool head_bias = m.head_bias || m.mlm_head;
  if (!m.tied_embeddings)
    text += fmt::format("        self.head = nn.Linear(HIDDEN, VOCAB, bias={})\n", truth(head_bias));
  else if (head_bias)
    text += "        self.head_bias = nn.Parameter(torch.zeros(VOCAB))\n";

  text += "\n    def forward(self, tokens, labels):\n        x = self.tokens(tokens)\n";
  if (m.learned_positions)
    text += m.position_offset > 0
                ? fmt::format(
                      "        x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device) + "
                      "{})\n",
                      m.position_offset)
                : "        x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))\n";
  if (m.token_types > 0) text += "        x = x + self.types(torch.zeros_like(tokens))\n";
  if (embedding_norm) text += "        x = self.embedding_norm(x)\n";
  const Choices& c = plan.choices;
  if (c.recompute == Recompute::full && c.recompute_layers > 0 && c.recompute_layers < m.layers)
    text += fmt::format(
        "        for number, layer in enumerate(self.layers):\n"
        "            x = checkpoint(layer, x, use_reentrant=False) if number < {} else layer(x)\n",
        c.recompute_layers);
  else if (c.recompute == Recompute::full)
    text += "        for layer in self.layers:\n            x = checkpoint(layer, x, use_reentrant=False)\n";
  else
    text += "        for layer in self.layers:\n            x = layer(x)\n";
  if (final_norm) text += "        x = self.final_norm(x)\n";
  if (m.mlm_head) text += "        x = self.head_norm(" + activation(m, "self.head_transform(x)") + ")\n";
  const std::string bias = head_bias ? ", self.head_bias" : "";
  text += m.tied_embeddings ? "        logits = F.linear(x, self.tokens.weight" + bias + ")\n"
                            : "        logits = self.head(x)\n";
  return text +
         "        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), "
         "ignore_index=-1)\n";
}

// What a checkpoint calls each tensor, where a layer's number stands as {}; of tensors that stand [in, out],
// whether they do.
std::string names_table(const Workload& workload) {
  const Transformer& m = *workload.transformer;
  Transformer whole = m;
  whole.fine_tuning = {};
  std::string text =
      "\n# Of --init: our name, the checkpoint's, whether its matrix stands inputs x outputs.\nNAMES = [\n";
  const auto row = [&](const std::string& ours, const ParameterTensor& tensor, bool in_layer,
                       TensorSplit split) {
    std::string theirs = tensor.name;
    if (in_layer) theirs.replace(theirs.find(".0."), 3, ".{}.");
    const bool turned =
        tensor.shape.size() == 2 && ((split == TensorSplit::column && tensor.split_dim == 1) ||
                                     (split == TensorSplit::row && tensor.split_dim == 0));
    text += fmt::format("    (\"{}{}\", \"{}\", {}),\n", in_layer ? "layers.{}." : "", ours, theirs,
                        truth(turned));
  };
  for (const Operator& op : transformer_operators(whole)) {
    if (op.layer > 0 && op.layer < m.layers) continue;
    const bool in_layer = op.layer == 0;
    std::string base = in_layer ? op.name.substr(op.name.find('.', 2) + 1) : op.name;
    std::vector<std::string> owners = {base};  // of the tensors that end in .weight, one after another
    if (base == "embedding") {
      owners = {"tokens"};
      if (m.learned_positions) owners.emplace_back("positions");
      if (m.token_types > 0) owners.emplace_back("types");
    }
    if (base == "qkv" && fused_parts(workload) == 0) owners = {"q", "k", "v"};
    if (base == "qkv") owners.insert(owners.end(), {"q_norm", "k_norm"});
    if (base == "mlp_up")
      owners = m.gated_ffn ? std::vector<std::string>{"gate", "up"} : std::vector<std::string>{"up"};
    if (base == "mlp_down") owners = {"down"};
    int owner = -1;
    for (const ParameterTensor& tensor : op.parameters) {
      const bool weight = !tensor.name.ends_with("bias");
      owner += weight ? 1 : 0;
      if (!tensor.tied_to.empty()) continue;
      const bool lone_bias = base == "head" && !weight && m.tied_embeddings;
      row(lone_bias ? "head_bias"
                    : owners[static_cast<std::size_t>(std::max(0, owner))] + (weight ? ".weight" : ".bias"),
          tensor, in_layer, op.split);
    }
  }
  return text + "]\n";
}

}  // namespace

std::string torchrun_model(const Plan& plan, std::vector<std::string>* notes) {
  const Transformer& m = transformer_for(plan, "torchrun");
  if (const std::string part = foreign_part(m); !part.empty())
    throw UserError(fmt::format("{} cannot be exported to torchrun: train.py builds no {}",
                                plan.job->workload.name, part),
                    "expected a dense transformer; megatron, deepspeed and torchtitan take others");
  if (const int tokens = plan.job->training.seq_len; !m.has_positions_for(tokens))
    throw UserError(fmt::format("sequences of {} tokens cannot be exported to torchrun: {} has learned "
                                "positions for {}",
                                tokens, plan.job->workload.name, m.max_positions),
                    fmt::format("expected `seq_len` of at most {}", m.max_positions));
  if (m.rotary_scaling.kind == RopeScaling::dynamic || m.rotary_scaling.kind == RopeScaling::yarn)
    notes->push_back(
        fmt::format("train.py does not scale rotary positions by {}: losses differ, times do not",
                    name_of(m.rotary_scaling.kind)));
  if (m.qk_norm && m.qk_norm_absent_weights)
    notes->emplace_back("train.py leaves out the norms of queries and keys, which train nothing");
  if (m.masked_share > 0)
    notes->push_back(
        fmt::format("train.py's head sees all tokens; the plan's sees {:g} of each", m.masked_share));
  for (const std::string& what : m.unexecuted)
    notes->push_back(fmt::format("train.py leaves out: {}; as the plan's times do, but losses differ", what));
  const auto plain = [&](bool has, const char* what) {
    if (has) notes->push_back(fmt::format("train.py leaves out {}; losses differ", what));
  };
  plain(m.attention_softcap > 0, "the soft cap of scores");
  plain(m.final_softcap > 0, "the soft cap of logits");
  plain(m.attention_scale > 0, "the scale of scores, which is 1 / sqrt(head_dim) there");
  plain(m.embedding_scale != 1, "the scale of embeddings");
  plain(m.norms_offset, "that norms multiply by one more than their weights");
  if (m.dropouts.any())
    notes->emplace_back("train.py drops nothing out, nor do the plan's times; losses differ");
  if (m.sliding_window > 0 && plan.job->training.fused_attention)
    notes->emplace_back(
        "a window is a mask to PyTorch's attention, which then runs without FlashAttention and slower");
  return constants(plan) + names_table(plan.job->workload) + norm_class(m) + rotary_function(m) +
         attention_function(plan) + block_class(plan, m) + model_class(plan, m);
}

}  // namespace orrery::planner
