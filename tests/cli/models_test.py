#!/usr/bin/env python3
"""Models beyond language models: BERT learns hidden tokens, networks learn classes of images, from files or made up."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase

BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 32, "vocab_size": 300,
        "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12}


class Models(OrreryCase):
    def train(self, plan, steps, *options):
        out = self.folder / "run.json"
        self.done("run", plan, "--steps", steps, "--json", out, *options)
        return json.loads(out.read_text())

    def test_bert_learns_and_its_weights_go_out_and_in(self):
        config = self.folder / "config.json"
        config.write_text(json.dumps(BERT))
        plan = self.folder / "bert"
        self.done("plan", config, "localhost", "--gpus", "2", "--tp", "2", "--global-batch", "8", "--seq-len", "32",
                  "--precision", "fp32", "--optimizer", "adam", "--out", plan)
        first = self.train(plan, 8, "--learning-rate", "3e-3", "--save", self.folder / "model.safetensors")
        self.assertLess(first["loss"][-1], 0.9 * first["loss"][0])
        again = self.train(plan, 1, "--init", self.folder / "model.safetensors")
        self.assertLess(again["loss"][0], 0.9 * first["loss"][0])

    def test_a_network_learns_made_up_images_and_says_so(self):
        plan = self.folder / "resnet"
        self.done("plan", "resnet20", "localhost", "--gpus", "2", "--dp", "2", "--zero", "1", "--global-batch", "16",
                  "--micro-batch", "8", "--precision", "fp32", "--optimizer", "momentum", "--out", plan)
        result = self.train(plan, 8)
        self.assertIn("synthetic", result["data"])
        self.assertLess(result["loss"][-1], result["loss"][0])
        self.assertGreater(result["samples_per_s"], 0)
        self.assertIn("synthetic", self.done("run", plan, "--steps", "1"))

    def test_images_come_from_files(self):
        folder = self.folder / "cifar"
        folder.mkdir()
        records = b"".join(bytes([label]) + bytes([20 * label]) * 3072 for label in range(10))
        (folder / "data_batch_1.bin").write_bytes(records)
        plan = self.folder / "perceptron"
        self.done("plan", "mlp-300-100", "localhost", "--gpus", "1", "--global-batch", "10", "--micro-batch", "5",
                  "--precision", "fp32", "--optimizer", "sgd", "--out", plan)
        result = self.train(plan, 12, "--data", folder, "--learning-rate", "1e-3")
        self.assertLess(result["loss"][-1], result["loss"][0])
        self.assertEqual(result["data"], str(folder))
        for wrong in (self.folder, self.folder / "nowhere"):
            refused = self.orrery("run", plan, "--data", wrong)
            self.assertEqual(refused.returncode, 2)
            self.assertEqual(refused.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
