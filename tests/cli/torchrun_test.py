#!/usr/bin/env python3
"""`--to torchrun`: what its train.py computes under Debian's PyTorch with Gloo, beside `orrery run` of the same plan."""
import json
import math
import os
import re
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase

PYTHON = "/usr/bin/python3"  # Debian's, which python3-torch belongs to
TEXT = "/usr/share/common-licenses/GPL-3"
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 256, "max_position_embeddings": 64}
GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 32, "vocab_size": 259,
        "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
NEOX = {"model_type": "gpt_neox", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 256, "max_position_embeddings": 64, "rotary_pct": 0.5}
LLAMA3 = {"model_type": "llama", **SHAPE, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                                           "high_freq_factor": 4.0, "original_max_position_embeddings": 16}}
MODELS = [("gpt2", GPT2, "--zero 0", "adamw"),
          ("gpt2, ZeRO-1", GPT2, "--zero 1", "adam"),
          ("llama 3.1, recomputed", LLAMA3, "--zero 0 --recompute full:2", "sgd"),
          ("mistral, recomputed attention", {"model_type": "mistral", **SHAPE, "sliding_window": 9},
           "--zero 0 --recompute selective", "momentum"),
          ("qwen3, micro-batches", {"model_type": "qwen3", **SHAPE, "head_dim": 16}, "--zero 0 --micro-batch 1", "adamw"),
          ("opt", {"model_type": "opt", "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                   "vocab_size": 256, "max_position_embeddings": 64, "word_embed_proj_dim": 32, "dropout": 0.0},
           "--zero 0", "sgd")]
# The number of parameters, and a first loss of weights that know nothing.
BUILT = [("gpt_neox", NEOX), ("olmo2", {"model_type": "olmo2", **SHAPE}),
         ("gemma2", {"model_type": "gemma2", **SHAPE, "head_dim": 8, "sliding_window": 9}),
         ("bert", {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 32, "intermediate_size": 64,
                   "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256, "max_position_embeddings": 64,
                   "type_vocab_size": 2}),
         ("falcon", {"model_type": "falcon", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
                     "multi_query": True, "parallel_attn": True, "alibi": False, "bias": False})]

# In the place of torchrun, whose 1.13 does not start under Python 3.11 (members of its enumeration are lost): the same variables.
STARTER = """#!{python}
import os, subprocess, sys
options = [word for word in sys.argv[1:] if word.startswith("--") and sys.argv.index(word) < sys.argv.index("train.py")]
assert options == ["--standalone", "--nproc_per_node=2"], options
command = [sys.executable, *sys.argv[sys.argv.index("train.py"):]]
started = [subprocess.Popen(command, env=dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                                              MASTER_ADDR="127.0.0.1", MASTER_PORT="{port}")) for rank in range(2)]
sys.exit(max(abs(rank.wait()) for rank in started))
"""


class Torchrun(OrreryCase):
    def setUp(self):
        super().setUp()
        if subprocess.run([PYTHON, "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
                          capture_output=True).returncode != 0:
            self.skipTest("there is no PyTorch with Gloo (Debian: python3-torch)")

    def planned(self, model, optimizer, *options):
        config, plan = self.folder / "config.json", self.folder / "plan"
        config.write_text(json.dumps(model))
        self.done("plan", config, "localhost", "--gpus", "2", "--dp", "2", "--global-batch", "4", "--seq-len", "32", "--precision",
                  "fp32", "--attention", "unfused", "--optimizer", optimizer, *options, "--out", plan)
        return plan

    def trained(self, plan, *arguments):
        """What two ranks print, started as a person would."""
        out = self.folder / "out"
        self.done("export", plan, "--to", "torchrun", "--out", out)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        starter = self.folder / "torchrun"
        starter.write_text(STARTER.format(python=PYTHON, port=port))
        starter.chmod(0o755)
        done = subprocess.run(["bash", "launch.sh", *map(str, arguments)], cwd=out, capture_output=True, text=True, timeout=300,
                              env={**self.environment, "PATH": f"{self.folder}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                                   "GLOO_SOCKET_IFNAME": "lo"})
        self.assertEqual(done.returncode, 0, done.stderr)
        parameters = int(re.search(r"^(\d+) parameters", done.stdout, re.M)[1])
        self.assertEqual(parameters, self.json("describe", self.folder / "config.json")["parameters"])
        return [float(loss) for loss in re.findall(r"^step: \d+  loss: (\S+)", done.stdout, re.M)]

    def test_two_ranks_of_pytorch_lose_what_two_ranks_of_orrery_lose(self):
        for name, model, options, optimizer in MODELS:
            with self.subTest(name):
                plan, batches, weights = self.planned(model, optimizer, *options.split()), self.folder / "b", self.folder / "w"
                run = ["run", plan, "--data", TEXT, "--steps"]
                batches.write_text(self.done(*run, "4", "--print-batches"))
                # A step that moves nothing: the weights that training starts from.
                still = ["--weight-decay", "0"] if optimizer.startswith("adam") else []
                self.done(*run, "1", "--learning-rate", "1e-30", *still, "--save", weights)
                self.done(*run, "4", "--init", weights, "--learning-rate", "1e-3", "--json", self.folder / "run.json")
                ours = json.loads((self.folder / "run.json").read_text())["loss"]
                theirs = self.trained(plan, "--data", TEXT, "--batches", batches, "--init", weights, "--steps", "4", "--lr", "1e-3")
                self.assertEqual(len(theirs), 4)
                worst = max(abs(a - b) / a for a, b in zip(ours, theirs))
                print(f"{name}: losses within {worst:.1e}")
                self.assertLess(worst, 2e-6)

    def test_other_dense_models_are_built_whole_and_start_from_nothing(self):
        for name, model in BUILT:
            with self.subTest(name):
                losses = self.trained(self.planned(model, "adamw", "--zero", "0"), "--steps", "3")
                self.assertEqual(len(losses), 3)
                self.assertLess(abs(losses[0] - math.log(256)), 0.1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
