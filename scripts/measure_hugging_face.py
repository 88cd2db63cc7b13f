#!/usr/bin/env python3
"""Measures training steps of Hugging Face models on one GPU, for `orrery calibrate CLUSTER --from OUT/steps.csv OUT/*.json.gz`.

As transformers' Trainer runs them with bf16=True: fp32 weights, torch.autocast, SDPA attention, fused AdamW; no
dropout, no data loader, random weights and tokens. Needs PyTorch with CUDA and transformers, and no network:
models are config.json files. Ten minutes at most.

  scripts/measure_hugging_face.py --out measured --gpu H200 gpt2.json:8x1024 llama-3.2-1b.json:1x2048,4x2048
"""
import argparse
import csv
import gc
import json
import pathlib
import statistics
import sys
import time

COLUMNS = [
    "framework", "model", "model_file", "n_layers", "hidden", "n_heads", "n_kv_heads", "ffn_hidden", "vocab", "seq_len_tokens", "gpu", "n_gpus",
    "precision", "tp", "pp", "gbs_sequences", "mbs_sequences", "act_recompute", "step_time_s", "mem_per_gpu_gb", "notes",
]
DROPOUT = ["embd_pdrop", "attn_pdrop", "resid_pdrop", "hidden_dropout_prob", "attention_probs_dropout_prob", "dropout",
           "attention_dropout", "activation_dropout", "classifier_dropout"]


def parse(text):
    """FILE:BATCHxSEQ[,BATCHxSEQ...] as (path, [(batch, seq)])."""
    file, _, shapes = text.rpartition(":")
    try:
        pairs = [tuple(int(number) for number in shape.split("x")) for shape in shapes.split(",")]
        if not file or any(len(pair) != 2 or min(pair) < 1 for pair in pairs):
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not FILE:BATCHxSEQ, such as gpt2.json:8x1024") from None
    return pathlib.Path(file), pairs


def dimensions(config, file):
    """Columns of a model, of whatever names its configuration gives them."""
    def first(*names):
        return next((config[name] for name in names if config.get(name)), "")

    hidden, heads = first("hidden_size", "n_embd"), first("num_attention_heads", "n_head")
    return {
        "model": file.stem, "model_file": str(file.resolve()), "n_layers": first("num_hidden_layers", "n_layer"), "hidden": hidden, "n_heads": heads,
        "n_kv_heads": first("num_key_value_heads") or heads,
        "ffn_hidden": first("intermediate_size", "ffn_dim", "n_inner") or 4 * hidden, "vocab": config["vocab_size"],
    }


def model_of(torch, transformers, file):
    """A model of random weights on the GPU."""
    config = json.loads(file.read_text())
    kind = config.pop("model_type")
    masked = any("MaskedLM" in name or "PreTraining" in name for name in config.get("architectures") or [])
    for name in ("torch_dtype", "dtype", "_name_or_path"):
        config.pop(name, None)
    config.update({name: 0.0 for name in DROPOUT if name in config or kind in ("gpt2", "bert", "phi", "opt")
                   and name in vars(transformers.AutoConfig.for_model(kind))})
    settings = transformers.AutoConfig.for_model(kind, **config)
    settings.use_cache = False
    settings._attn_implementation = "sdpa"
    maker = transformers.AutoModelForMaskedLM if masked else transformers.AutoModelForCausalLM
    with torch.device("cuda"):
        return maker.from_config(settings, dtype=torch.float32).train()


def measure(torch, transformers, file, batch, seq, steps, trace):
    """(median, least and most seconds of a step, bytes allocated, bytes reserved)."""
    model = model_of(torch, transformers, file)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, model.config.vocab_size, (batch, seq), device="cuda")
    torch.cuda.reset_peak_memory_stats()

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()

    for _ in range(3):
        step()
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    peak = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    if trace:
        from torch.profiler import ProfilerActivity, profile, schedule
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True,
                     schedule=schedule(wait=0, warmup=1, active=3, repeat=1)) as profiler:
            for _ in range(4):
                step()
                profiler.step()
        profiler.export_chrome_trace(str(trace))
    return statistics.median(times), min(times), max(times), *peak


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=parse, metavar="FILE:BATCHxSEQ[,…]", help="a config.json and what to train it with")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("measured"), help="folder of steps.csv and traces")
    parser.add_argument("--gpu", help="its name in the table (default: as the driver calls it)")
    parser.add_argument("--steps", type=int, default=8, help="timed steps of each, after three that warm up")
    parser.add_argument("--no-traces", action="store_true", help="times alone: profiled steps take longer and megabytes")
    options = parser.parse_args()
    try:
        import torch
        import transformers
    except ImportError as error:
        sys.exit(f"{error}: this needs PyTorch with CUDA and transformers (pip install torch transformers)")
    if not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU")
    options.out.mkdir(parents=True, exist_ok=True)
    gpu = options.gpu or torch.cuda.get_device_name()
    with open(options.out / "steps.csv", "w", newline="") as table:
        rows = csv.DictWriter(table, COLUMNS)
        rows.writeheader()
        for file, shapes in options.models:
            for batch, seq in shapes:
                trace = None if options.no_traces else options.out / f"{file.stem}-{batch}x{seq}.json.gz"
                try:
                    median, least, most, allocated, reserved = measure(torch, transformers, file, batch, seq, options.steps, trace)
                except torch.cuda.OutOfMemoryError:
                    print(f"{file.stem} {batch}x{seq}: out of memory", flush=True)
                    continue
                finally:
                    gc.collect()
                    torch.cuda.empty_cache()
                rows.writerow({
                    "framework": "Hugging Face Trainer", **dimensions(json.loads(file.read_text()), file), "seq_len_tokens": seq, "gpu": gpu,
                    "n_gpus": 1, "precision": "bf16", "tp": 1, "pp": 1, "gbs_sequences": batch, "mbs_sequences": batch,
                    "act_recompute": "none", "step_time_s": f"{median:.6g}", "mem_per_gpu_gb": f"{allocated / 1e9:.4f}",
                    "notes": f"max_memory_allocated bytes/1e9; {least:.6g} to {most:.6g} s; reserved {reserved / 1e9:.4f} GB; "
                             f"PyTorch {torch.__version__}, transformers {transformers.__version__}",
                })
                table.flush()
                print(f"{file.stem} {batch}x{seq}: {median * 1e3:.1f} ms, {allocated / 1e9:.1f} GB", flush=True)


if __name__ == "__main__":
    main()
