#!/usr/bin/env python3
"""What PyTorch computes, in double precision, from the same weights on the same batches: scripts/compare_with_pytorch.py."""
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import ORRERY, SOURCE, OrreryCase

PYTHON = "/usr/bin/python3"  # Debian's, which python3-torch belongs to
SHAPE = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 256, "max_position_embeddings": 64}
GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 32, "vocab_size": 259}
NEOX = {name: value for name, value in SHAPE.items() if name != "num_key_value_heads"}
HALF = {"sliding_window": 9}
MODELS = [("gpt2 tp2", GPT2, "--gpus 2 --tp 2", "adamw"), ("llama pp2", {"model_type": "llama", **SHAPE}, "--gpus 2 --pp 2", "sgd"),
          ("llama, linear", {"model_type": "llama", **SHAPE, "rope_scaling": {"type": "linear", "factor": 4.0}}, "--gpus 2 --tp 2", "sgd"),
          ("llama, dynamic", {"model_type": "llama", **SHAPE, "max_position_embeddings": 16,
                              "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "--gpus 1", "adamw"),
          ("llama, llama3", {"model_type": "llama", **SHAPE, "rope_scaling": {
              "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 32}}, "--gpus 2 --cp 2", "adamw"),
          ("llama, yarn", {"model_type": "llama", **SHAPE, "rope_scaling": {
              "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}}, "--gpus 2 --pp 2", "adamw"),
          ("mistral zero3", {"model_type": "mistral", **SHAPE, **HALF}, "--gpus 2 --dp 2 --zero 3", "momentum"),
          ("qwen2", {"model_type": "qwen2", **SHAPE, **HALF, "use_sliding_window": True, "max_window_layers": 1}, "--gpus 1",
           "adam"),
          ("qwen3 tp2", {"model_type": "qwen3", **SHAPE, "head_dim": 16}, "--gpus 2 --tp 2 --sequence-parallel on", "adamw"),
          ("stablelm dp2", {"model_type": "stablelm", **SHAPE, "partial_rotary_factor": 0.5, "use_qkv_bias": True}, "--gpus 2 --dp 2",
           "adamw"),
          ("starcoder2 tp2", {"model_type": "starcoder2", **SHAPE, **HALF}, "--gpus 2 --tp 2", "adamw"),
          ("starcoder2 pp2, dropout", {"model_type": "starcoder2", **SHAPE, **HALF, "attention_dropout": 0.2, "residual_dropout": 0.1,
                                       "embedding_dropout": 0.1}, "--gpus 2 --pp 2", "sgd"),
          ("gemma2 tp2", {"model_type": "gemma2", **SHAPE, **HALF, "head_dim": 16, "query_pre_attn_scalar": 24,
                          "attn_logit_softcapping": 0.05, "final_logit_softcapping": 0.5, "attention_dropout": 0.2},
           "--gpus 2 --tp 2 --sequence-parallel on", "adamw"),
          ("gemma2 zero3", {"model_type": "gemma2", **SHAPE, "head_dim": 8}, "--gpus 2 --dp 2 --zero 3", "sgd"),
          ("olmo2 pp2", {"model_type": "olmo2", **SHAPE}, "--gpus 2 --pp 2", "adamw"),
          ("olmoe ep2", {"model_type": "olmoe", **SHAPE, "num_experts": 4, "num_experts_per_tok": 2, "router_aux_loss_coef": 0.0},
           "--gpus 2 --dp 2 --ep 2", "sgd"),
          ("gpt_neox tp2, dropout", {"model_type": "gpt_neox", **NEOX, "hidden_dropout": 0.1, "attention_dropout": 0.1},
           "--gpus 2 --tp 2 --sequence-parallel on", "adamw"),
          ("gpt_neox one after the other", {"model_type": "gpt_neox", **NEOX, "use_parallel_residual": False, "hidden_dropout": 0.1},
           "--gpus 2 --pp 2", "momentum"),
          ("stablelm zero3, dropout", {"model_type": "stablelm", **SHAPE, "hidden_dropout": 0.3}, "--gpus 2 --dp 2 --zero 3", "adamw"),
          ("llama cp2, dropout", {"model_type": "llama", **SHAPE, "attention_dropout": 0.5}, "--gpus 2 --cp 2", "momentum"),
          ("qwen3_moe ep2", {"model_type": "qwen3_moe", **SHAPE, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2,
                             "moe_intermediate_size": 24, "norm_topk_prob": False, "router_aux_loss_coef": 0.0},
           "--gpus 2 --dp 2 --ep 2", "adamw"),
          ("mixtral ep2", {"model_type": "mixtral", **SHAPE, "num_local_experts": 4, "num_experts_per_tok": 2,
                           "router_aux_loss_coef": 0.0}, "--gpus 2 --dp 2 --ep 2", "adamw")]


BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "vocab_size": 259, "max_position_embeddings": 64}
VIT = {"model_type": "vit", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
       "image_size": 32, "patch_size": 8, "num_labels": 10}
MODELS += [("bert tp2, dropout", BERT, "--gpus 2 --tp 2", "adamw"),
           ("bert zero3", {**BERT, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu_new"},
            "--gpus 2 --dp 2 --zero 3", "sgd"),
           ("bert cp2, dropout", BERT, "--gpus 2 --cp 2", "momentum"),
           ("vit dp2", VIT, "--gpus 2 --dp 2", "adamw"), ("vit tp2", VIT, "--gpus 2 --tp 2", "sgd"),
           ("vit pp2", {**VIT, "hidden_act": "relu", "qkv_bias": False}, "--gpus 2 --pp 2", "momentum"),
           ("vit zero3", VIT, "--gpus 2 --dp 2 --zero 3", "adam")]


class PyTorch(OrreryCase):
    def test_a_networks_losses_are_pytorchs_with_batch_norms_of_the_same_micro_batches(self):
        if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
            self.skipTest("there is no PyTorch (Debian: python3-torch)")
        for plan in ("--gpus 1 --micro-batch 8", "--gpus 1 --micro-batch 2", "--gpus 2 --dp 2 --micro-batch 4", "--gpus 2 --pp 2"):
            with self.subTest(plan):
                done = subprocess.run([PYTHON, SOURCE / "scripts/compare_with_pytorch.py", "resnet20", "--global-batch", "8", "--plan", plan,
                                       "--optimizer", "momentum", "--steps", "3", "--learning-rate", "1e-4", "--tolerance", "1e-5",
                                       "--json"], capture_output=True, text=True, env={**self.environment, "ORRERY": ORRERY})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_losses_are_pytorchs_of_the_same_weights_on_the_same_batches(self):
        if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
            self.skipTest("there is no PyTorch (Debian: python3-torch)")
        for name, model, plan, optimizer in MODELS:
            with self.subTest(name):
                config = self.folder / "config.json"
                config.write_text(json.dumps(model))
                done = subprocess.run([PYTHON, SOURCE / "scripts/compare_with_pytorch.py", config, "--plan", plan, "--optimizer",
                                       optimizer, "--steps", "4", "--tolerance", "2e-7", "--json"], capture_output=True,
                                      text=True, env={**self.environment, "ORRERY": ORRERY})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
