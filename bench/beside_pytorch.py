#!/usr/bin/env python3
"""Speed beside eager PyTorch (Debian's python3-torch) in one run: the same models, batches and optimizer, by turns.

    beside_pytorch.py [--models gpt2,llama,bert,resnet50,mixtral] [--ranks 1,2] [--rounds 3] [--steps 4] [--json FILE]

Each round trains a few steps with `orrery run` and as many in PyTorch; the first step of either is left out. A ratio is
PyTorch's median step by Orrery's of the same round, so that what else the machine does meets both; printed are the medians
of steps and ratios. With two ranks PyTorch is the faster of two threads in one process and two processes of one thread each
(DistributedDataParallel over gloo), each with half of the batch.

Memory is what is resident at most, of all processes together, less what program and libraries take before there is a model;
of PyTorch with two ranks that of DistributedDataParallel, which holds a model in each process as well.
"products" is how much of Orrery's step its model's matrix products would take at the rate of the largest ones alone, by the
BLAS that PyTorch has on as many threads, measured in the same round.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional as F
except ImportError:
    sys.exit("beside_pytorch.py: there is no PyTorch (Debian: apt install python3-torch)")

LLAMA = {"hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
         "vocab_size": 8192, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": False}
MIXTRAL = {**LLAMA, "intermediate_size": 1024, "num_hidden_layers": 4, "num_local_experts": 8, "num_experts_per_tok": 2,
           "router_aux_loss_coef": 0.0}
# Configuration, samples of a step over all ranks, tokens.
MODELS = {
    "gpt2": ({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
              "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}, 4, 64),
    "llama": ({"model_type": "llama", **LLAMA}, 4, 256),
    "bert": ({"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
              "num_attention_heads": 12, "vocab_size": 30522, "max_position_embeddings": 512, "hidden_dropout_prob": 0.0,
              "attention_probs_dropout_prob": 0.0}, 4, 64),
    "resnet50": (None, 8, 0),
    "mixtral": ({"model_type": "mixtral", **MIXTRAL}, 4, 128),
}


def batched(a, b):
    """a @ b, head by head: without MKL, and Debian's has none, PyTorch multiplies a batch without a BLAS, ten times as slowly."""
    products = [x @ y for x, y in zip(a.flatten(0, 1), b.flatten(0, 1))]
    return torch.stack(products).unflatten(0, a.shape[:2])


class Block(nn.Module):
    """A transformer's block: of GPT-2, of BERT (norms behind), of Llama (gated, grouped, rotary) or with experts."""

    def __init__(self, kind, width, heads, kv_heads, inner, experts=0):
        super().__init__()
        self.kind, self.heads, self.kv_heads, self.dim, self.experts = kind, heads, kv_heads, width // heads, experts
        plain = kind in ("gpt2", "bert")
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.dim, bias=plain)
        self.out = nn.Linear(width, width, bias=plain)
        self.norms = nn.ModuleList(nn.LayerNorm(width) if plain else RmsNorm(width) for _ in range(2))
        count = max(1, experts)
        self.up = nn.ModuleList(nn.Linear(width, inner if plain else 2 * inner, bias=plain) for _ in range(count))
        self.down = nn.ModuleList(nn.Linear(inner, width, bias=plain) for _ in range(count))
        self.router = nn.Linear(width, experts, bias=False) if experts else None

    def attend(self, x, turns):
        q, k, v = self.qkv(x).split([self.heads * self.dim] + 2 * [self.kv_heads * self.dim], -1)
        q, k, v = (part.unflatten(-1, (-1, self.dim)).transpose(1, 2) for part in (q, k, v))
        if turns is not None:
            q, k = turned(q, turns), turned(k, turns)
        if self.kv_heads < self.heads:
            k, v = (part.repeat_interleave(self.heads // self.kv_heads, 1) for part in (k, v))
        scores = batched(q, k.transpose(-1, -2)) * self.dim ** -0.5
        if self.kind != "bert":
            hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        return self.out(batched(torch.softmax(scores, -1), v).transpose(1, 2).flatten(2))

    def one(self, x, i):
        h = self.up[i](x)
        if self.kind in ("gpt2", "bert"):
            return self.down[i](F.gelu(h, approximate="tanh" if self.kind == "gpt2" else "none"))
        gate, up = h.chunk(2, -1)
        return self.down[i](F.silu(gate) * up)

    def mlp(self, x):
        if not self.experts:
            return self.one(x, 0)
        rows = x.flatten(0, 1)
        best, chosen = torch.softmax(self.router(rows), -1).topk(2, -1)
        best, out = best / best.sum(-1, keepdim=True), torch.zeros_like(rows)
        for e in range(self.experts):
            row, which = (chosen == e).nonzero(as_tuple=True)
            out = out.index_add(0, row, self.one(rows[row], e) * best[row, which, None])
        return out.view_as(x)

    def forward(self, x, turns):
        if self.kind == "bert":
            x = self.norms[0](x + self.attend(x, turns))
            return self.norms[1](x + self.mlp(x))
        x = x + self.attend(self.norms[0](x), turns)
        return x + self.mlp(self.norms[1](x))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def turned(x, turns):
    a, b = x.chunk(2, -1)
    cosine, sine = turns
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)


class Transformer(nn.Module):
    def __init__(self, c, length):
        super().__init__()
        kind = c["model_type"]
        width, layers = c.get("hidden_size", c.get("n_embd")), c.get("num_hidden_layers", c.get("n_layer"))
        heads = c.get("num_attention_heads", c.get("n_head"))
        inner = c.get("intermediate_size", 4 * width)
        self.kind, self.tokens = kind, nn.Embedding(c["vocab_size"], width)
        plain = kind in ("gpt2", "bert")
        self.positions = nn.Embedding(c.get("max_position_embeddings", c.get("n_positions")), width) if plain else None
        self.types, self.first = (nn.Embedding(2, width), nn.LayerNorm(width)) if kind == "bert" else (None, None)
        self.blocks = nn.ModuleList(Block(kind, width, heads, c.get("num_key_value_heads", heads), inner,
                                          c.get("num_local_experts", 0)) for _ in range(layers))
        self.transform = nn.Linear(width, width) if kind == "bert" else None
        self.last = nn.LayerNorm(width) if plain else RmsNorm(width)
        self.head = nn.Linear(width, c["vocab_size"], bias=kind == "bert")
        if plain:
            self.head.weight = self.tokens.weight
        dim = width // heads
        angle = torch.arange(length)[:, None] * 1e4 ** (-torch.arange(0, dim, 2) / dim)
        self.turns = None if plain else (angle.cos(), angle.sin())

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[:tokens.shape[1]]
        if self.types is not None:
            segment = (torch.arange(tokens.shape[1]) >= (tokens.shape[1] + 1) // 2).long()
            x = self.first(x + self.types(segment))
        for block in self.blocks:
            x = block(x, self.turns)
        if self.transform is not None:
            x = F.gelu(self.transform(x))
        return F.cross_entropy(self.head(self.last(x)).flatten(0, 1), targets.flatten())


class Bottleneck(nn.Module):
    def __init__(self, fed, width, stride):
        super().__init__()
        out = 4 * width
        self.main = nn.Sequential(nn.Conv2d(fed, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        plain = stride == 1 and fed == out
        self.side = nn.Identity() if plain else nn.Sequential(nn.Conv2d(fed, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.main(x) + self.side(x), inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        parts, fed = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for i in range(blocks):
                parts.append(Bottleneck(fed, 64 << stage, 2 if stage > 0 and i == 0 else 1))
                fed = 256 << stage
        self.body, self.head = nn.Sequential(*parts), nn.Linear(2048, 1000)

    def forward(self, x, targets):
        return F.cross_entropy(self.head(self.body(x).mean((2, 3))), targets)


def resident_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def products_per_s(threads, width=1536, rounds=4):
    """FLOP/s of large products."""
    torch.set_num_threads(threads)
    a, b = torch.randn(width, width), torch.randn(width, width)
    a @ b
    begin = time.perf_counter()
    for _ in range(rounds):
        a @ b
    return 2 * width ** 3 * rounds / (time.perf_counter() - begin)


def pytorch_steps(name, samples, steps, threads, group=None):
    """Seconds of each step but the first; what is resident beyond the library."""
    before = resident_bytes()
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    config, _, length = MODELS[name]
    if config is None:
        model, layout = ResNet50().to(memory_format=torch.channels_last), {"memory_format": torch.channels_last}
        inputs, targets = torch.randn(samples, 3, 224, 224).to(**layout), torch.randint(0, 1000, (samples,))
    else:
        model = Transformer(config, length)
        for weight in model.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, 0, 0.02)
        inputs, targets = (torch.randint(0, 255, (samples, length)) for _ in range(2))
        if name == "bert":
            targets = targets.masked_fill(torch.rand(samples, length) > 0.15, -100)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3) if config is None else torch.optim.AdamW(model.parameters(), lr=1e-4)
    trained = nn.parallel.DistributedDataParallel(model, find_unused_parameters=name == "mixtral") if group else model
    ends = []
    for _ in range(steps + 1):
        optimizer.zero_grad(set_to_none=True)
        trained(inputs, targets).backward()
        optimizer.step()
        ends.append(time.perf_counter())
    return {"steps_s": [b - a for a, b in zip(ends, ends[1:])], "resident_bytes": resident_bytes() - before}


def worker(name, samples, steps, rank, ranks, port):
    """One process of DistributedDataParallel."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    return pytorch_steps(name, samples, steps, 1, group=True)


def pytorch(name, ranks, steps):
    """The median step of the faster way, and what as many processes hold."""
    samples = MODELS[name][1]
    alone = in_process("pytorch_steps", name, samples, steps, threads=ranks)
    step_s, held_bytes = statistics.median(alone["steps_s"]), alone["resident_bytes"]
    if ranks > 1:
        port = 20000 + os.getpid() % 20000
        words = [sys.executable, __file__, "--worker"]
        processes = [subprocess.Popen([*words, json.dumps(["worker", name, samples // ranks, steps, rank, ranks, port])],
                                      stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
                     for rank in range(ranks)]
        answers = [process.communicate()[0] for process in processes]
        if any(process.returncode != 0 for process in processes):
            sys.exit(f"beside_pytorch.py: DistributedDataParallel of {name} on {ranks} ranks failed")
        answers = list(map(json.loads, answers))
        step_s = min(step_s, statistics.median(max(pair) for pair in zip(*(each["steps_s"] for each in answers))))
        held_bytes = sum(each["resident_bytes"] for each in answers)
    return step_s, held_bytes


def in_process(*words, threads):
    """What a function answers in a process of so many threads: set_num_threads alone leaves OpenBLAS all cores."""
    done = subprocess.run([sys.executable, __file__, "--worker", json.dumps([*words, threads])], capture_output=True, text=True,
                          check=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    return json.loads(done.stdout)


def orrery(name, ranks, steps, folder):
    config, samples, length = MODELS[name]
    model = name
    if config is not None:
        model = folder / f"{name}.json"
        model.write_text(json.dumps(config))
    plan, result = folder / "plan", folder / "run.json"
    program = os.environ.get("ORRERY", "orrery")
    degrees = ["--dp", ranks, *(["--ep", ranks] if name == "mixtral" else [])]
    words = ["plan", model, "localhost", "--gpus", ranks, *degrees, "--tp", 1, "--pp", 1, "--zero", 0, "--micro-batch", samples // ranks,
             "--recompute", "none", "--global-batch", samples, "--precision", "fp32", "--optimizer",
             "sgd" if config is None else "adamw", *(["--seq-len", length] if length else []), "--out", plan]
    planned = folder / "plan.json"
    for one in ([*words, "--json", planned], ["run", plan, "--steps", steps + 1, "--json", result]):
        done = subprocess.run([program, *map(str, one)], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"beside_pytorch.py: orrery {' '.join(map(str, one))}: {done.stderr.strip()}")
    run = json.loads(result.read_text())
    return (run["step_time_s"]["median"], ranks * (run["resident_bytes"] - run["context_bytes"]),
            json.loads(planned.read_text())["plans"][0]["model_flops"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--ranks", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        what, *words = json.loads(arguments.worker)
        print(json.dumps({each.__name__: each for each in (products_per_s, pytorch_steps, worker)}[what](*words)))
        return
    rows = []
    print(f"PyTorch {torch.__version__}\nmodel     ranks  orrery s  PyTorch s  PyTorch by orrery (rounds)  products  orrery GiB  PyTorch GiB")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models.split(","):
            for ranks in map(int, arguments.ranks.split(",")):
                ours, theirs, products = [], [], []
                for _ in range(arguments.rounds):
                    ours.append(orrery(name, ranks, arguments.steps, pathlib.Path(folder)))
                    theirs.append(pytorch(name, ranks, arguments.steps))
                    products.append(ours[-1][2] / in_process("products_per_s", threads=ranks) / ours[-1][0])
                ratios = [b[0] / a[0] for a, b in zip(ours, theirs)]
                row = {"model": name, "ranks": ranks, "orrery_s": statistics.median(a[0] for a in ours),
                       "pytorch_s": statistics.median(b[0] for b in theirs), "ratio": statistics.median(ratios), "ratios": ratios,
                       "products": statistics.median(products), "orrery_resident_bytes": max(a[1] for a in ours),
                       "pytorch_resident_bytes": min(b[1] for b in theirs)}
                rows.append(row)
                print(f"{name:9} {ranks:5}  {row['orrery_s']:8.3f}  {row['pytorch_s']:9.3f}  {row['ratio']:.2f} "
                      f"({', '.join(f'{ratio:.2f}' for ratio in ratios)})  {row['products']:8.0%}  "
                      f"{row['orrery_resident_bytes'] / 2 ** 30:10.2f}  {row['pytorch_resident_bytes'] / 2 ** 30:11.2f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
