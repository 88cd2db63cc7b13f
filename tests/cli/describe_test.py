#!/usr/bin/env python3
"""`orrery describe`: what a workload is, whatever it is read from."""
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase

GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 4, "n_head": 4, "n_positions": 32, "vocab_size": 260}


class Describe(OrreryCase):
    def test_figures_of_a_catalog_model_agree_with_its_plan(self):
        described = self.json("describe", "gpt2-xl", "--seq-len", "512")
        planned = self.json("plan", "gpt2-xl", "dgx-a100", "--gpus", "8", "--global-batch", "8", "--seq-len", "512",
                            "--tp", "1", "--pp", "1", "--micro-batch", "1", "--zero", "1", "--recompute", "none")
        self.assertEqual(described["parameters"], planned["parameters"])
        self.assertAlmostEqual(8 * described["model_flops"] / planned["plans"][0]["model_flops"], 1, delta=1e-9)
        for parts in (described["parts"], described["operators"]):
            for field in ("parameters", "forward_flops", "output_bytes"):
                self.assertAlmostEqual(sum(part[field] for part in parts) / described[field], 1, delta=1e-9)
        self.assertEqual([part["count"] for part in described["parts"]], [1, 48, 1])

    def test_a_file_is_described_with_what_was_assumed_of_it(self):
        config = self.folder / "config.json"
        config.write_text(json.dumps({**GPT2, "attn_pdrop": 0.1, "flux_capacitors": 2}))
        described = self.json("describe", config)
        hidden, layers, vocabulary, positions = 48, 4, 260, 32
        self.assertEqual(described["parameters"], layers * (12 * hidden**2 + 13 * hidden)
                         + (vocabulary + positions) * hidden + 2 * hidden)
        self.assertTrue(any("32 tokens" in text for text in described["assumed"]), described["assumed"])
        self.assertTrue(any("flux_capacitors" in text for text in described["assumed"]), described["assumed"])

    def test_text_names_layers_and_kinds(self):
        text = self.done("describe", "mixtral-8x7b")
        for word in ("46.7 B parameters", "active", "expert_linear", "router", "embedding"):
            self.assertIn(word, text)
        self.assertIn("conv", self.done("describe", "resnet50"))

    def test_layers_that_alternate_stand_in_a_row_for_each_kind(self):
        text = self.done("describe", "gemma2-2b", "--seq-len", "8192")  # a window of 4,096 in every second layer
        rows = [line for line in text.split("operators")[0].splitlines() if "linear" in line]
        self.assertEqual(len(rows), 2, text)
        self.assertEqual([row.split("attention")[1].split()[0] for row in rows], ["13", "13"], text)
        self.assertEqual(len(self.json("describe", "gemma2-2b", "--seq-len", "8192")["parts"]), 28)

    def test_bad_input_is_refused(self):
        self.refused("describe", "gpt5", says="gpt5")
        self.refused("describe", "resnet50", "--seq-len", "128", says="seq")
        self.refused("describe", "gpt2", "--precision", "fp2", says="fp2")


if __name__ == "__main__":
    unittest.main()
