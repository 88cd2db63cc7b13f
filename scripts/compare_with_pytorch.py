#!/usr/bin/env python3
"""Trains a model twice, by `orrery run` and by PyTorch in double precision, on the same batches from the same weights,
and prints both losses of every step.

    compare_with_pytorch.py CONFIG.json [--steps 5] [--seq-len 32] [--global-batch 4] [--optimizer adamw]
                            [--learning-rate 1e-3] [--plan "--gpus 2 --tp 2"] [--data TEXT] [--json]

CONFIG is a Hugging Face configuration of gpt2, llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, stablelm, starcoder2, gemma2,
olmo2, olmoe, gpt_neox, bert or vit, small enough to train twice, or a network of the catalog by its name: resnet20, resnet50,
resnet101, resnet152 (their batch norms by the plan's micro-batches). Images are random: of 32 x 32 in CIFAR-10's format, of
224 x 224 as PPM files in a folder a class. In single precision a ReLU near zero goes either way, and deep networks make more of
that with every step: their losses agree to 1e-4 or so. The model below is written from those architectures' papers, apart from the executor: what both agree on is the mathematics.
Exit code 0 where every loss agrees within --tolerance, 3 where one does not. Wants Debian's python3-torch.
"""
import argparse
import json
import math
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    from torch.nn import functional as F
except ImportError:
    sys.exit("compare_with_pytorch.py: there is no PyTorch (Debian: apt install python3-torch)")

DATA = "/usr/share/common-licenses/GPL-3"


def read_safetensors(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    tensors = {}
    for name, about in json.loads(raw[8:8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = about["data_offsets"]
        kind = {"F32": torch.float32, "I64": torch.int64}[about["dtype"]]
        values = torch.frombuffer(bytearray(raw[8 + length + begin:8 + length + end]), dtype=kind)
        tensors[name] = values.reshape(about["shape"]).double()
    return tensors


STEP = 0x9E3779B97F4A7C15


def mixed(z):
    """SplitMix64's finaliser of 64-bit integers."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


class Dropouts:
    """What a step leaves out, as docs/executor.md has it: by the seed, the step, the sample, the position, the operator's
    number and the column alone."""

    def __init__(self, seed, step, samples, length):
        with np.errstate(over="ignore"):
            key = mixed(np.uint64(seed ^ 0x64726F706F757473))
            for part in (np.uint64(step), np.arange(samples, dtype=np.uint64)[:, None], np.arange(length, dtype=np.uint64)):
                key = mixed(key + np.uint64(STEP) * (part + np.uint64(1)))
        self.key = np.where(key == 0, np.uint64(1), key)

    def factors(self, rate, state, columns):
        """0 or 1 / (1 - rate), for each of these states (the row's key and the place) and columns."""
        with np.errstate(over="ignore"):
            low, high = state.astype(np.uint32)[..., None], (state >> np.uint64(32)).astype(np.uint32)[..., None]
            x = np.arange(columns, dtype=np.uint32) * np.uint32(0x9E3779B9) + low
            x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D) + high
            x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
            x = x ^ (x >> np.uint32(16))
        return torch.from_numpy((x >= np.uint32(int(rate * 2 ** 32))).astype(np.float64)) / (1 - rate)

    @staticmethod
    def place(operator, branch=0):
        return int(mixed(np.uint64(STEP * ((operator << 16) + branch + 1) % 2 ** 64)))

    def rows(self, x, rate, operator, branch=0):
        """Of an operator's output, batch x length x columns."""
        return x * self.factors(rate, self.key ^ np.uint64(self.place(operator, branch)), x.shape[-1]) if rate else x

    def probabilities(self, p, rate, operator):
        if not rate:
            return p
        heads = [np.uint64((self.place(operator) + STEP * (h + 1)) % 2 ** 64) for h in range(p.shape[1])]
        return p * self.factors(rate, np.stack([self.key ^ head for head in heads], axis=1), p.shape[-1])


def causal_mask(length, window):
    query, key = torch.arange(length)[:, None], torch.arange(length)[None, :]
    seen = key <= query
    return seen & (key > query - window) if window else seen


def soft_cap(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def attention(q, k, v, window, dropped=lambda p: p, scale=None, cap=None):
    """batch x heads x length x head_dim each; keys and values of fewer heads are shared."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = soft_cap(q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5), cap)
    scores = scores.masked_fill(~causal_mask(q.shape[-2], window), -math.inf)
    return dropped(torch.softmax(scores, dim=-1)) @ v


def heads_of(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def rms_norm(x, weight, epsilon):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)


def gelu(x):
    """By its tanh form, as both GPT-2 and StarCoder2 were trained."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def gpt2(c, w, tokens, drop):
    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], c.get("layer_norm_epsilon", 1e-5))

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][:tokens.shape[1]]
    x = drop.rows(x, c.get("embd_pdrop", 0.1), 0)
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        first = 1 + 10 * i  # of the layer's operators: norm, qkv, attention, proj, residual, norm, up, activation, down, residual
        scores = lambda s: drop.probabilities(s, c.get("attn_pdrop", 0.1), first + 2)
        residual = lambda y, at: drop.rows(y, c.get("resid_pdrop", 0.1), at)
        q, k, v = (heads_of(part, c["n_head"]) for part in linear(norm(x, p + "ln_1"), p + "attn.c_attn").chunk(3, -1))
        x = x + residual(linear(attention(q, k, v, 0, scores).transpose(1, 2).flatten(2), p + "attn.c_proj"), first + 4)
        h = linear(norm(x, p + "ln_2"), p + "mlp.c_fc")
        x = x + residual(linear(gelu(h), p + "mlp.c_proj"), first + 9)
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def turning(theta, dim, length, c):
    """Radians a position of each pair, and by what the turned values are multiplied (`rope_scaling`)."""
    how = c.get("rope_scaling") or {}
    kind, factor = how.get("rope_type", how.get("type", "default")), how.get("factor", 1.0)
    trained = how.get("original_max_position_embeddings", c.get("max_position_embeddings"))
    if kind == "dynamic":
        theta *= (factor * max(length, trained) / trained - factor + 1) ** (dim / (dim - 2))
    speed = theta ** (-torch.arange(0, dim, 2).double() / dim)
    if kind in ("default", "dynamic"):
        return speed, 1
    if kind == "linear":
        return speed / factor, 1
    turns = trained * speed / (2 * math.pi)  # within the positions that were trained first
    if kind == "llama3":
        low, high = how["low_freq_factor"], how["high_freq_factor"]
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return speed * (kept + (1 - kept) / factor), 1
    if kind == "yarn":
        def pair(turned):
            return dim * math.log(trained / (turned * 2 * math.pi)) / (2 * math.log(theta))

        low = max(math.floor(pair(how.get("beta_fast", 32))), 0)
        high = min(math.ceil(pair(how.get("beta_slow", 1))), dim - 1)
        stretched = ((torch.arange(dim // 2).double() - low) / (high - low if high > low else 1e-3)).clamp(0, 1)
        return speed * (1 - stretched + stretched / factor), how.get("attention_factor") or 0.1 * math.log(factor) + 1
    sys.exit(f"compare_with_pytorch.py: rope_scaling of the type '{kind}' is not in the model here")


def rotary(x, theta, share, c):
    """The first `share` of each head's elements turn; the others stay."""
    length, dim = x.shape[-2], int(x.shape[-1] * share)
    x, still = x[..., :dim], x[..., dim:]
    speed, amplitude = turning(theta, dim, length, c)
    angle = torch.arange(length).double()[:, None] * speed
    cosine, sine = amplitude * angle.cos(), amplitude * angle.sin()
    a, b = x.chunk(2, -1)
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine, still], -1)


def experts(c, w, p, x):
    """A softmax over all experts, the k most likely, their weights scaled to add up to one (Mixtral) or as they are."""
    probability = torch.softmax(x @ w[p + "gate.weight"].T, -1)
    best, chosen = probability.topk(c["num_experts_per_tok"], -1)
    mixtral = c["model_type"] == "mixtral"
    if c.get("norm_topk_prob", mixtral):
        best = best / best.sum(-1, keepdim=True)
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    out = torch.zeros_like(x)
    for e in range(c["num_local_experts"] if mixtral else c["num_experts"]):
        q = f"{p}experts.{e}."
        y = (F.silu(x @ w[f"{q}{gate}.weight"].T) * (x @ w[f"{q}{up}.weight"].T)) @ w[f"{q}{down}.weight"].T
        out = out + y * (best * (chosen == e)).sum(-1, keepdim=True)
    return out


def llama(c, w, tokens, drop):
    mixtral = c["model_type"] == "mixtral"
    epsilon = next((c[key] for key in ("rms_norm_eps", "layer_norm_eps", "norm_epsilon") if key in c),
                   1e-6 if c["model_type"] in ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe") else 1e-5)
    theta = c.get("rope_theta", 1e6 if mixtral else 1e4)
    share = c.get("partial_rotary_factor", 0.25 if c["model_type"] == "stablelm" else 1.0)
    heads, kv_heads = c["num_attention_heads"], c.get("num_key_value_heads", c["num_attention_heads"])
    window = c.get("sliding_window") or 0
    if c["model_type"] in ("qwen2", "qwen3", "qwen3_moe") and not c.get("use_sliding_window", False):
        window = 0

    def linear(x, name):
        bias = w.get(name + ".bias")
        return x @ w[name + ".weight"].T + (0 if bias is None else bias)

    def norm(x, name):
        if name + ".bias" in w:
            return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], epsilon)
        return rms_norm(x, w[name + ".weight"], epsilon)

    x = drop.rows(w["model.embed_tokens.weight"][tokens], c.get("embedding_dropout", 0), 0)
    sparse = c["model_type"] in ("mixtral", "qwen3_moe", "olmoe")
    after_attention, after_mlp = c.get("residual_dropout", 0), c.get("residual_dropout", c.get("hidden_dropout", 0))
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        # Experts: norm, router, dispatch, up, activation, down, combine, residual.
        first = 1 + (13 if sparse else 10) * i
        scores = lambda s: drop.probabilities(s, c.get("attention_dropout", 0), first + 2)
        h = norm(x, p + "input_layernorm")
        q, k, v = (linear(h, f"{p}self_attn.{part}_proj") for part in "qkv")
        if c["model_type"] == "olmoe":  # of all heads at once
            q, k = norm(q, p + "self_attn.q_norm"), norm(k, p + "self_attn.k_norm")
        q, k, v = heads_of(q, heads), heads_of(k, kv_heads), heads_of(v, kv_heads)
        if p + "self_attn.q_norm.weight" in w and c["model_type"] != "olmoe":
            q = rms_norm(q, w[p + "self_attn.q_norm.weight"], epsilon)
            k = rms_norm(k, w[p + "self_attn.k_norm.weight"], epsilon)
        seen = window if i >= c.get("max_window_layers", 0) or c["model_type"] not in ("qwen2", "qwen3", "qwen3_moe") else 0
        mixed = attention(rotary(q, theta, share, c), rotary(k, theta, share, c), v, seen, scores).transpose(1, 2).flatten(2)
        x = x + drop.rows(linear(mixed, p + "self_attn.o_proj"), after_attention, first + 4)
        h = norm(x, p + "post_attention_layernorm")
        if sparse:
            y = experts(c, w, p + ("block_sparse_moe." if c["model_type"] == "mixtral" else "mlp."), h)
        elif c["model_type"] == "starcoder2":
            y = linear(gelu(linear(h, p + "mlp.c_fc")), p + "mlp.c_proj")
        else:
            y = linear(F.silu(linear(h, p + "mlp.gate_proj")) * linear(h, p + "mlp.up_proj"), p + "mlp.down_proj")
        x = x + drop.rows(y, after_mlp, first + (12 if sparse else 9))
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(x, "model.norm") @ head.T


def gemma2(c, w, tokens, drop):
    """Norms around every branch, by 1 + their weights; capped scores and logits; a window in every other layer."""
    def norm(x, name):
        return rms_norm(x, 1 + w[name + ".weight"], c.get("rms_norm_eps", 1e-6))

    theta, capped = c.get("rope_theta", 1e4), c.get("attn_logit_softcapping", 50.0)
    scale = c.get("query_pre_attn_scalar", 256) ** -0.5
    x = w["model.embed_tokens.weight"][tokens] * math.sqrt(c["hidden_size"])
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        h = norm(x, p + "input_layernorm")
        q, k, v = (heads_of(h @ w[f"{p}self_attn.{part}_proj.weight"].T, n)
                   for part, n in (("q", c["num_attention_heads"]), ("k", c["num_key_value_heads"]), ("v", c["num_key_value_heads"])))
        dropped = lambda s: drop.probabilities(s, c.get("attention_dropout", 0), 1 + 12 * i + 2)
        mixed = attention(rotary(q, theta, 1, c), rotary(k, theta, 1, c), v, c.get("sliding_window", 4096) if i % 2 == 0 else 0,
                          dropped, scale, capped)
        x = x + norm(mixed.transpose(1, 2).flatten(2) @ w[p + "self_attn.o_proj.weight"].T, p + "post_attention_layernorm")
        h = norm(x, p + "pre_feedforward_layernorm")
        y = gelu(h @ w[p + "mlp.gate_proj.weight"].T) * (h @ w[p + "mlp.up_proj.weight"].T) @ w[p + "mlp.down_proj.weight"].T
        x = x + norm(y, p + "post_feedforward_layernorm")
    return soft_cap(norm(x, "model.norm") @ w["model.embed_tokens.weight"].T, c.get("final_logit_softcapping", 30.0))


def olmo2(c, w, tokens, drop):
    """Products of the stream as it is; norms of what comes out of attention and MLP, and of all queries and all keys."""
    def norm(x, name):
        return rms_norm(x, w[name + ".weight"], c.get("rms_norm_eps", 1e-5))

    theta = c.get("rope_theta", 1e4)
    x = w["model.embed_tokens.weight"][tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        q, k, v = (x @ w[f"{p}self_attn.{part}_proj.weight"].T for part in "qkv")
        q, k = norm(q, p + "self_attn.q_norm"), norm(k, p + "self_attn.k_norm")
        q, k, v = heads_of(q, c["num_attention_heads"]), heads_of(k, c["num_key_value_heads"]), heads_of(v, c["num_key_value_heads"])
        mixed = attention(rotary(q, theta, 1, c), rotary(k, theta, 1, c), v, 0).transpose(1, 2).flatten(2)
        x = x + norm(mixed @ w[p + "self_attn.o_proj.weight"].T, p + "post_attention_layernorm")
        y = F.silu(x @ w[p + "mlp.gate_proj.weight"].T) * (x @ w[p + "mlp.up_proj.weight"].T)
        x = x + norm(y @ w[p + "mlp.down_proj.weight"].T, p + "post_feedforward_layernorm")
    return norm(x, "model.norm") @ w["lm_head.weight"].T


def gpt_neox(c, w, tokens, drop):
    """Attention and MLP side by side, each behind a norm; each head's query, key and value side by side in one product."""
    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], c.get("layer_norm_eps", 1e-5))

    theta, share, rate = c.get("rotary_emb_base", 1e4), c.get("rotary_pct", 0.25), c.get("hidden_dropout", 0)
    parallel = c.get("use_parallel_residual", True)
    x = drop.rows(w["gpt_neox.embed_in.weight"][tokens], rate, 0)
    for i in range(c["num_hidden_layers"]):
        p = f"gpt_neox.layers.{i}."
        # norm, qkv, attention, proj, norm, up, activation, down, residual; or a residual behind proj, too.
        first = 1 + (9 if parallel else 10) * i
        q, k, v = heads_of(linear(norm(x, p + "input_layernorm"), p + "attention.query_key_value"),
                           c["num_attention_heads"]).chunk(3, -1)
        mixed = attention(rotary(q, theta, share, c), rotary(k, theta, share, c), v, 0,
                          lambda s: drop.probabilities(s, c.get("attention_dropout", 0), first + 2))
        y = linear(mixed.transpose(1, 2).flatten(2), p + "attention.dense")
        y = drop.rows(y, rate, first + 8) if parallel else drop.rows(y, rate, first + 4)
        h = norm(x if parallel else x + y, p + "post_attention_layernorm")
        h = linear(F.gelu(linear(h, p + "mlp.dense_h_to_4h")), p + "mlp.dense_4h_to_h")
        h = drop.rows(h, rate, first + 8, 1) if parallel else drop.rows(h, rate, first + 9)
        x = x + y + h
    return norm(x, "gpt_neox.final_layer_norm") @ w["embed_out.weight"].T


def bert(c, w, tokens, drop):
    """Norms behind each addition; both halves of a sequence are segments; tokens that are hidden are predicted (their
    logits alone are asked for, so all are given)."""
    def linear(x, name):
        return x @ w[name + ".weight"].T + w[name + ".bias"]

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], c.get("layer_norm_eps", 1e-12))

    e, length = "bert.embeddings.", tokens.shape[1]
    rate, of_scores = c.get("hidden_dropout_prob", 0.1), c.get("attention_probs_dropout_prob", 0.1)
    segment = (torch.arange(length) >= (length + 1) // 2).long()
    x = w[e + "word_embeddings.weight"][tokens] + w[e + "position_embeddings.weight"][:length]
    x = drop.rows(norm(x + w[e + "token_type_embeddings.weight"][segment], e + "LayerNorm"), rate, 1)
    for i in range(c["num_hidden_layers"]):
        p = f"bert.encoder.layer.{i}."
        first = 2 + 10 * i  # of the layer's operators: qkv, attention, proj, residual, norm, up, activation, down, residual, norm
        q, k, v = (heads_of(linear(x, f"{p}attention.self.{part}"), c["num_attention_heads"])
                   for part in ("query", "key", "value"))
        p_of = drop.probabilities(torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1), of_scores, first + 1)
        y = linear((p_of @ v).transpose(1, 2).flatten(2), p + "attention.output.dense")
        x = norm(x + drop.rows(y, rate, first + 3), p + "attention.output.LayerNorm")
        y = linear(activated(c, linear(x, p + "intermediate.dense")), p + "output.dense")
        x = norm(x + drop.rows(y, rate, first + 8), p + "output.LayerNorm")
    h = "cls.predictions."
    x = norm(activated(c, linear(x, h + "transform.dense")), h + "transform.LayerNorm")
    return x @ w[e + "word_embeddings.weight"].T + w.get(h + "decoder.bias", w.get(h + "bias"))


def activated(c, x):
    return {"gelu": F.gelu, "gelu_new": gelu, "relu": F.relu}[c.get("hidden_act", "gelu")](x)


def vit(c, w, images, drop):
    """Patches behind a class token, blocks behind norms, a class for the class token (arXiv 2010.11929)."""
    def linear(x, name):
        bias = w.get(name + ".bias")
        return x @ w[name + ".weight"].T + (0 if bias is None else bias)

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], c.get("layer_norm_eps", 1e-12))

    e = "vit.embeddings."
    cut = F.unfold(images, c["patch_size"], stride=c["patch_size"]).transpose(1, 2)
    x = cut @ w[e + "patch_embeddings.projection.weight"].flatten(1).T + w[e + "patch_embeddings.projection.bias"]
    x = torch.cat([w[e + "cls_token"].expand(len(x), 1, -1), x], 1) + w[e + "position_embeddings"]
    for i in range(c["num_hidden_layers"]):
        p = f"vit.encoder.layer.{i}."
        h = norm(x, p + "layernorm_before")
        q, k, v = (heads_of(linear(h, f"{p}attention.attention.{part}"), c["num_attention_heads"])
                   for part in ("query", "key", "value"))
        y = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v
        x = x + linear(y.transpose(1, 2).flatten(2), p + "attention.output.dense")
        h = activated(c, linear(norm(x, p + "layernorm_after"), p + "intermediate.dense"))
        x = x + linear(h, p + "output.dense")
    return linear(norm(x, "vit.layernorm")[:, 0], "classifier")


def resnet(c, w, images, drop):
    """Torchvision's names: blocks of three convolutions or of two; a large first convolution has a pool behind it."""
    def norm(x, name):
        return F.batch_norm(x, None, None, w[name + ".weight"], w[name + ".bias"], True, 0.1, 1e-5)

    large = w["conv1.weight"].shape[-1] == 7
    x = F.relu(norm(F.conv2d(images, w["conv1.weight"], stride=2 if large else 1, padding=3 if large else 1), "bn1"))
    if large:
        x = F.max_pool2d(x, 3, 2, 1)
    for p in dict.fromkeys(re.match(r"layer\d+\.\d+\.", name)[0] for name in sorted(w, key=lambda n: [int(d) for d in re.findall(
            r"\d+", n)]) if name.startswith("layer")):
        stride = 2 if p.endswith(".0.") and not p.startswith("layer1.") else 1
        three = p + "conv3.weight" in w
        y = F.relu(norm(F.conv2d(x, w[p + "conv1.weight"], stride=1 if three else stride, padding=0 if three else 1), p + "bn1"))
        y = norm(F.conv2d(y, w[p + "conv2.weight"], stride=stride if three else 1, padding=1), p + "bn2")
        if three:
            y = norm(F.conv2d(F.relu(y), w[p + "conv3.weight"]), p + "bn3")
        if p + "downsample.0.weight" in w:
            x = norm(F.conv2d(x, w[p + "downsample.0.weight"], stride=stride), p + "downsample.1")
        x = F.relu(x + y)
    return F.linear(x.mean((2, 3)), w["fc.weight"], w["fc.bias"])


RESNETS = {"resnet20": 32, "resnet50": 224, "resnet101": 224, "resnet152": 224}  # images' side
MODELS = {"resnet": resnet, "bert": bert, "vit": vit, "gpt2": gpt2, "gemma2": gemma2, "olmo2": olmo2, "gpt_neox": gpt_neox,
          **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "olmoe", "stablelm", "starcoder2"), llama)}


def optimizer_of(name, weights, rate):
    """The executor's defaults (docs/executor.md)."""
    if name == "sgd":
        return torch.optim.SGD(weights, lr=rate)
    if name == "momentum":
        return torch.optim.SGD(weights, lr=rate, momentum=0.9)
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    return kind(weights, lr=rate, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01 if name == "adamw" else 0)


def text_batch(config, text, batch, drop, weights, arguments):
    """The loss of a step: of the next token, or of those that are hidden."""
    rows = [text[begin:begin + arguments.seq_len + 1] for begin in batch["samples_begin"]]
    data = torch.tensor([list(row) for row in rows])
    tokens, targets = data[:, :-1], data[:, 1:]
    if "hidden" in batch:
        tokens, targets = tokens.clone(), torch.full_like(tokens, -100)
        for i, hidden in enumerate(batch["hidden"]):
            for position, becomes in hidden:
                targets[i, position], tokens[i, position] = data[i, position], becomes
    logits = MODELS[config["model_type"]](config, weights, tokens, drop)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def pixels(raw, side):
    return torch.from_numpy((raw.reshape(3, side, side).astype(np.float64) / 255 - 0.5) / 0.25)


def image_batch(config, batch, weights):
    """CIFAR-10's records: a label, then 32 x 32 bytes of red, green, blue; or PPM files, whose folder is their class."""
    images, labels = [], []
    for picture in batch["pictures"]:
        file = pathlib.Path(picture["file"])
        if file.suffix == ".ppm":
            raw = np.frombuffer(file.read_bytes()[-3 * 224 * 224:], np.uint8).reshape(224, 224, 3).transpose(2, 0, 1)
            labels.append(int(file.parent.name))
            images.append(pixels(raw.copy(), 224))
        else:
            record = np.fromfile(file, np.uint8, 3073, offset=3073 * picture["record"])
            labels.append(int(record[0]))
            images.append(pixels(record[1:], 32))
    # Batch norms go by the samples of one micro-batch.
    model = MODELS[config["model_type"]]
    parts = torch.stack(images).split(config.get("micro_batch", len(images)))
    return F.cross_entropy(torch.cat([model(config, weights, part, None) for part in parts]), torch.tensor(labels))


def random_pictures(folder, side):
    """What --data reads."""
    draw = np.random.default_rng(1)
    if side == 32:
        records = draw.integers(0, 256, (64, 3073), np.uint8)
        records[:, 0] %= 10
        (folder / "data_batch_1.bin").write_bytes(records.tobytes())
        return folder / "data_batch_1.bin"
    for label in range(16):
        of_class = folder / "pictures" / f"{label:03}"
        of_class.mkdir(parents=True)
        (of_class / "picture.ppm").write_bytes(b"P6\n224 224\n255\n" + draw.integers(0, 256, (224, 224, 3), np.uint8).tobytes())
    return folder / "pictures"


def train(config, weights, text, batches, seed, arguments):
    # Running statistics are for inference alone.
    weights = {name: tensor for name, tensor in weights.items() if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    for tensor in weights.values():
        tensor.requires_grad_(True)
    optimizer = optimizer_of(arguments.optimizer, list(weights.values()), arguments.learning_rate)
    losses = []
    for step, batch in enumerate(batches):
        if "pictures" in batch:
            loss = image_batch(config, batch, weights)
        else:
            drop = Dropouts(seed, step, len(batch["samples_begin"]), arguments.seq_len)
            loss = text_batch(config, text, batch, drop, weights, arguments)
        optimizer.zero_grad()
        loss.backward()
        if arguments.clip_norm:
            torch.nn.utils.clip_grad_norm_(list(weights.values()), arguments.clip_norm)
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--seq-len", type=int, default=32)
    parser.add_argument("--global-batch", type=int, default=4)
    parser.add_argument("--optimizer", choices=["sgd", "momentum", "adam", "adamw"], default="adamw")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--clip-norm", type=float, default=0, help="as the plan's runtime clips; 0: it does not")
    parser.add_argument("--plan", default="--gpus 1", help="further options of `orrery plan`")
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of each loss, relative")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    network = str(arguments.config) in RESNETS
    config = {"model_type": "resnet"} if network else json.loads(arguments.config.read_text())
    if config.get("model_type") not in MODELS:
        sys.exit(f"compare_with_pytorch.py: {arguments.config}: no model of type {config.get('model_type')} here "
                 f"(expected one of {', '.join(MODELS)})")
    if config.get("router_aux_loss_coef", 0.001) != 0 and config["model_type"] in ("mixtral", "qwen3_moe", "olmoe"):
        sys.exit(f"compare_with_pytorch.py: {arguments.config}: the balancing loss is not in the model here "
                 "(expected router_aux_loss_coef 0)")
    pictured = network or config["model_type"] == "vit"
    if pictured and not network and (config.get("image_size", 224), config.get("num_channels", 3)) != (32, 3):
        sys.exit(f"compare_with_pytorch.py: {arguments.config}: images of another size (expected image_size 32, 3 channels)")
    orrery = os.environ.get("ORRERY", "orrery")

    def call(*words):
        done = subprocess.run([orrery, *map(str, words)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"compare_with_pytorch.py: orrery {' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        plan, weights, result = folder / "plan", folder / "weights.safetensors", folder / "run.json"
        data, length = arguments.data, ["--seq-len", arguments.seq_len]
        if pictured:
            data, length = random_pictures(folder, RESNETS.get(str(arguments.config), 32)), []
        call("plan", arguments.config, "localhost", "--global-batch", arguments.global_batch, *length, "--precision", "fp32", "--optimizer", arguments.optimizer, "--out", plan, *shlex.split(arguments.plan))
        if network:
            config["micro_batch"] = int(re.search(r"^\s*micro_batch: (\d+)", plan.read_text(), re.M)[1])
        seed = int(next(re.finditer(r"^\s*seed: (\d+)", plan.read_text(), re.M), [0, 0])[1])
        run = ["run", plan, "--data", data, "--steps"]
        batches = [json.loads(line) for line in call(*run, arguments.steps, "--print-batches").splitlines()]
        # A step that moves nothing: the weights that training starts from.
        call(*run, 1, "--learning-rate", "1e-30", "--weight-decay", "0", "--save", weights) if arguments.optimizer.startswith(
            "adam") else call(*run, 1, "--learning-rate", "1e-30", "--save", weights)
        call(*run, arguments.steps, "--init", weights, "--learning-rate", arguments.learning_rate, "--json", result)
        ours = json.loads(result.read_text())["loss"]
        theirs = train(config, read_safetensors(weights), arguments.data.read_bytes(), batches, seed, arguments)
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
    if arguments.json:
        print(json.dumps({"orrery": ours, "pytorch_fp64": theirs, "worst": worst}))
    else:
        print("step  orrery        PyTorch fp64  difference")
        for step, (a, b) in enumerate(zip(ours, theirs), 1):
            print(f"{step:4}  {a:.9f}  {b:.9f}  {a - b:+.1e}")
    return 0 if worst <= arguments.tolerance else 3


if __name__ == "__main__":
    sys.exit(main())
