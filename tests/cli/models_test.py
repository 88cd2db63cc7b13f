#!/usr/bin/env python3
"""Models beyond language models: BERT learns hidden tokens, networks learn classes of images, from files or made up."""
import json
import math
import os
import struct
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase

BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 32, "vocab_size": 300,
        "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12}


def statistics_of(path):
    """Running statistics of a safetensors file: means and variances as lists, counts as numbers."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    found = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if "running" not in name and "num_batches" not in name:
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "I64":
            assert entry["shape"] == []
            found[name], = struct.unpack("<q", data[begin:end])
        else:
            found[name] = list(struct.unpack(f"<{(end - begin) // 4}f", data[begin:end]))
            assert entry["shape"] == [len(found[name])]
    return found


class Models(OrreryCase):
    def train(self, plan, steps, *options):
        out = self.folder / "run.json"
        self.done("run", plan, "--steps", steps, "--json", out, *options)
        return json.loads(out.read_text())

    def resnet(self, name, micro_batch, *options):
        self.done("plan", "resnet20", "localhost", "--gpus", "2", "--global-batch", "16", "--micro-batch", micro_batch,
                  "--precision", "fp32", "--optimizer", "momentum", "--out", self.folder / name, *options)
        return self.folder / name

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

    def test_the_optimizer_does_what_it_is_told(self):
        config = self.folder / "gpt.json"
        config.write_text(json.dumps({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32,
                                      "vocab_size": 259, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}))
        plan = self.folder / "gpt"
        self.done("plan", config, "localhost", "--gpus", "2", "--dp", "2", "--zero", "1", "--global-batch", "8",
                  "--seq-len", "16", "--precision", "fp32", "--optimizer", "adamw", "--out", plan)

        def norms(*options):
            return {name: tensor["norm"] for name, tensor in self.train(plan, 3, *options)["parameters_digest"].items()}

        plain = norms("--weight-decay", "0")
        decayed = norms("--weight-decay", "50")
        matrices = norms("--weight-decay", "50", "--decay-matrices-only")
        # Norms begin at one: 50 x 3e-4 a step, three times.
        weight = "transformer.ln_f.weight"
        self.assertAlmostEqual(decayed[weight] / plain[weight], (1 - 50 * 3e-4) ** 3, places=3)
        for name, norm in matrices.items():
            one_dimension = name.endswith("bias") or ".ln_" in name
            self.assertAlmostEqual(norm / (plain if one_dimension else decayed)[name], 1, places=2, msg=name)
        self.assertEqual(norms("--weight-decay", "0", "--beta1", "0.9", "--beta2", "0.999", "--epsilon", "1e-8",
                               "--rate-schedule", "constant", "--seed", "1"), plain)
        for other in (["--beta1", "0.5"], ["--beta2", "0.9"], ["--epsilon", "1e-2"], ["--rate-schedule", "cosine"],
                      ["--seed", "2"], ["--rate-schedule", "wsd", "--decay-steps", "2"]):
            self.assertNotEqual(norms("--weight-decay", "0", *other), plain, other)
        self.refused("run", plan, "--clip-norm", "2", says=["clip"])
        self.refused("run", plan, "--rate-schedule", "step", says=["rate-schedule"])

    def test_a_network_learns_made_up_images_and_says_so(self):
        plan = self.folder / "resnet"
        self.done("plan", "resnet20", "localhost", "--gpus", "2", "--dp", "2", "--zero", "1", "--global-batch", "16",
                  "--micro-batch", "8", "--precision", "fp32", "--optimizer", "momentum", "--out", plan)
        result = self.train(plan, 8)
        self.assertIn("synthetic", result["data"])
        self.assertLess(result["loss"][-1], result["loss"][0])
        self.assertGreater(result["samples_per_s"], 0)
        self.assertIn("synthetic", self.done("run", plan, "--steps", "1"))

    def test_running_statistics_are_kept_with_the_weights(self):
        plan = self.resnet("replicas", 4, "--dp", "2")
        whole = self.folder / "whole.safetensors"
        losses = self.train(plan, 4, "--save", whole)["loss"]
        self.assertLess(abs(losses[0] - math.log(10)), 0.6)
        kept = ["--checkpoint-dir", self.folder / "kept"]
        self.train(plan, 2, *kept, "--checkpoint-every", "2")
        rest = self.folder / "rest.safetensors"
        self.train(plan, 4, *kept, "--restart", "--save", rest)
        self.assertEqual(rest.read_bytes(), whole.read_bytes())
        statistics = statistics_of(whole)
        counts = {name for name in statistics if name.endswith(".num_batches_tracked")}
        self.assertEqual(len(statistics), 3 * len(counts))
        for name in counts:
            self.assertEqual(statistics[name], 8)  # four steps of two micro-batches
        norm = sorted(counts)[0].removesuffix(".num_batches_tracked")
        self.assertNotIn(0.0, statistics[norm + ".running_mean"])
        self.assertNotIn(1.0, statistics[norm + ".running_var"])
        # Another plan goes on with them: a pipeline of one replica, which has the first one's.
        stages = self.folder / "stages.safetensors"
        self.train(self.resnet("stages", 4, "--pp", "2"), 3, "--init", whole, "--save", stages)
        after = statistics_of(stages)
        self.assertEqual(set(after), set(statistics))
        self.assertEqual(after[norm + ".num_batches_tracked"], 8 + 3 * 4)

    def test_statistics_of_norms_that_tensor_ranks_split_are_put_together(self):
        plan = self.resnet("tensor", 8, "--tp", "2")
        # Two products, and so the norm between them, whatever pays here.
        block = "layer3.1."
        text = plan.read_text()
        for product, split in ((block + "conv1", "column"), (block + "conv2", "row")):
            before, after = text.split(f'name: "{product}"\n')
            text = f'{before}name: "{product}"\n{after.replace("image {", f"""split: "{split}" image {{""", 1)}'
        plan.write_text(text)
        whole, rest, turned = (self.folder / f"{name}.safetensors" for name in ("whole", "rest", "turned"))
        self.train(plan, 4, "--save", whole)
        kept = ["--checkpoint-dir", self.folder / "kept"]
        self.train(plan, 2, *kept, "--checkpoint-every", "2")
        self.train(plan, 4, *kept, "--restart", "--save", rest)
        self.assertEqual(rest.read_bytes(), whole.read_bytes())
        every = statistics_of(whole)
        self.assertNotIn(0.0, every[block + "bn1.running_mean"])
        self.assertNotIn(1.0, every[block + "bn1.running_var"])
        # Ranks that have all channels go on from them: one batch more is a tenth of what follows.
        self.train(self.resnet("turned", 8, "--dp", "2"), 1, "--init", whole, "--save", turned)
        for before, after in zip(every[block + "bn1.running_var"], statistics_of(turned)[block + "bn1.running_var"]):
            self.assertGreater(after, 0.9 * before)
            self.assertLess(after, 0.9 * before + 0.1 * 20 * before)

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
