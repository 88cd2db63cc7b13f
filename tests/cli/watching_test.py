#!/usr/bin/env python3
"""Watching a run: held-out text, a log, early stop, files of tokens, which samples a step trains on."""
import json
import math
import os
import struct
import sys
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checkpoint_test import GPT2 as GPT2_WITH_DROPOUT, TrainingCase
from orrery_case import walked

LLAMA = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 64}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
BERT = {"model_type": "bert", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
        "vocab_size": 260, "max_position_embeddings": 64, "architectures": ["BertForMaskedLM"],
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT2 = {**GPT2_WITH_DROPOUT, "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
STILL = ["--learning-rate", "1e-30"]  # weights stay what they are


def masked_crc(data):
    """CRC-32C as TensorFlow's records have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def protobuf_fields(data):
    """(number, value) of a message: whole numbers, and the bytes of all else."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, data[at:at + size]
        at += size


class Watching(TrainingCase):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text"
        self.text.write_text("It is a truth universally acknowledged, that a single man in possession of a good fortune, "
                             "must be in want of a wife. " * 40)

    def evaluated(self, plan, steps, *options):
        return self.train(plan, steps, "--data", self.text, "--eval-data", self.text, *options)["evaluations"]

    def test_the_held_out_loss_is_the_training_loss_of_the_same_weights_whatever_the_plan(self):
        plans = [("one", GPT2, ["--gpus", "1"]), ("dp2", GPT2, ["--gpus", "2", "--dp", "2", "--zero", "0"]),
                 ("zero3", GPT2, ["--gpus", "2", "--dp", "2", "--zero", "3"]),
                 ("tp2", LLAMA, ["--gpus", "2", "--tp", "2", "--sequence-parallel", "on"]),
                 ("pp2", LLAMA, ["--gpus", "2", "--pp", "2", "--micro-batch", "2", "--schedule", "1f1b"]),
                 ("v2", LLAMA, ["--gpus", "2", "--pp", "2", "--micro-batch", "2", "--schedule", "interleaved",
                                "--interleave", "2"]),
                 ("zb", LLAMA, ["--gpus", "2", "--pp", "2", "--micro-batch", "2", "--schedule", "zero-bubble"]),
                 ("dualpipe", GPT2, ["--gpus", "2", "--pp", "2", "--micro-batch", "2", "--schedule", "dualpipe-v"]),
                 ("cp2", LLAMA, ["--gpus", "2", "--cp", "2", "--recompute", "full"]),
                 ("ep2", MIXTRAL, ["--gpus", "2", "--dp", "2", "--ep", "2"]), ("bert", BERT, ["--gpus", "2", "--tp", "2"]),
                 ("servers", GPT2, ["--gpus", "2", "--dp", "2", "--sync", "parameter-server", "--servers", "1"]),
                 ("int8", GPT2, ["--gpus", "2", "--dp", "2", "--grad-compression", "int8"])]
        also_trained = walked(plans, 4)
        for name, model, options in walked(plans, 2):
            with self.subTest(name):
                plan = self.plan(name, *options, model=model)
                run = self.train(plan, 3, "--data", self.text, "--eval-data", self.text, "--eval-batches", 3, *STILL)
                self.assert_close([run["evaluations"][0]["loss"]], [sum(run["loss"]) / 3], 2e-6)
                if (name, model, options) not in also_trained:
                    continue
                # And it changes nothing of what is trained.
                watched = self.train(plan, 4, "--data", self.text, "--eval-data", self.text, "--eval-every", 1)
                alone = self.train(plan, 4, "--data", self.text)
                self.assertEqual(watched["loss"], alone["loss"])
                self.assertEqual(watched["parameters_digest"], alone["parameters_digest"])
                self.assertEqual([each["step"] for each in watched["evaluations"]], [1, 2, 3, 4])
                self.assertLess(watched["evaluations"][-1]["loss"], watched["evaluations"][0]["loss"])
                for each in watched["evaluations"]:
                    self.assertAlmostEqual(each["perplexity"], math.exp(each["loss"]), places=6)

    def test_an_evaluation_leaves_nothing_out(self):
        told = ["--data", self.text, "--eval-data", self.text, "--eval-batches", 3, *STILL]
        for name, options in (("one", ["--gpus", "1"]), ("tp2", ["--gpus", "2", "--tp", "2", "--sequence-parallel", "on"])):
            with self.subTest(name):
                dropping = self.train(self.plan(name, *options, model=GPT2_WITH_DROPOUT), 3, *told)
                whole = self.train(self.plan(name + "-whole", *options, model=GPT2), 3, *told)
                self.assertEqual(dropping["evaluations"], whole["evaluations"])
                for with_it, without in zip(dropping["loss"], whole["loss"]):
                    self.assertGreater(abs(with_it - without), 1e-4)

    def test_patience_ends_a_run_that_learns_nothing(self):
        plan = self.plan("dp2", "--gpus", "2", "--dp", "2")
        run = self.train(plan, 50, "--eval-data", self.text, "--eval-every", 2, "--patience", 3, *STILL)
        self.assertEqual(run["stopped_after"], 8)
        self.assertEqual(len(run["loss"]), 8)
        self.assertEqual(len(run["evaluations"]), 4)
        said = self.orrery("run", plan, "--steps", 50, "--eval-data", self.text, "--eval-every", 2, "--patience", 3, *STILL).stdout
        self.assertRegex(" ".join(said.split()), r"held out: loss \d\.\d+, perplexity \S+ after step 8; the run ended there")
        self.assertNotIn("stopped_after", self.train(plan, 6, "--eval-data", self.text, "--eval-every", 2, "--patience", 3))
        for options in (["--patience", 2], ["--eval-every", 2], ["--eval-data", self.text, "--patience", 2],
                        ["--eval-data", self.folder / "none"]):
            self.train(plan, 2, *options, code=2)
        short = self.folder / "short"
        short.write_text("too short for a batch")
        self.assertIn("a batch", self.train(plan, 2, "--eval-data", short, code=2))

    def test_the_log_has_a_line_for_each_step_evaluation_and_checkpoint(self):
        plan = self.plan("dp2", "--gpus", "2", "--dp", "2")
        log = self.folder / "log"
        options = ["--log", log, "--eval-data", self.text, "--eval-every", 3, "--checkpoint-dir", self.folder / "kept",
                   "--checkpoint-every", 2]
        first = self.train(plan, 4, *options)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual([(line["step"], next(key for key in line if key in ("loss", "evaluation_loss", "checkpoint")))
                          for line in lines], [(1, "loss"), (2, "loss"), (2, "checkpoint"), (3, "loss"),
                                               (3, "evaluation_loss"), (4, "loss"), (4, "evaluation_loss"), (4, "checkpoint")])
        self.assert_close([line["loss"] for line in lines if "loss" in line], first["loss"], 1e-12)
        for line in lines:
            self.assertGreater(line["elapsed_s"], 0)
            if "loss" in line:
                self.assertAlmostEqual(line["tokens_per_s"] * line["step_s"], 8 * 16, places=6)
        rest = self.train(plan, 6, *options, "--restart")
        again = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual(again[:len(lines)], lines)
        self.assert_close([line["loss"] for line in again[len(lines):] if "loss" in line], rest["loss"], 1e-12)
        self.assertIn("cannot be written", self.train(plan, 2, "--log", "/nonexistent/log", code=2))

    def events(self, folder):
        """Of each TensorBoard file in a folder, in order of their names: (step, tag, value), its check sums checked."""
        found = []
        for path in sorted(folder.iterdir()):
            self.assertIn("tfevents", path.name)
            raw, at = path.read_bytes(), 0
            first = True
            while at < len(raw):
                length, of_length = struct.unpack_from("<QI", raw, at)
                data = raw[at + 12:at + 12 + length]
                self.assertEqual(of_length, masked_crc(raw[at:at + 8]))
                self.assertEqual(struct.unpack_from("<I", raw, at + 12 + length)[0], masked_crc(data))
                at += 16 + length
                fields = dict(protobuf_fields(data))
                self.assertGreater(struct.unpack("<d", fields[1])[0], 1.6e9)
                if first:
                    self.assertEqual(fields[3], b"brain.Event:2")
                else:
                    for _, value in protobuf_fields(fields[5]):
                        one = dict(protobuf_fields(value))
                        found.append((fields[2], one[1].decode(), struct.unpack("<f", one[2])[0]))
                first = False
        return found

    def test_tensorboard_gets_losses_rates_and_evaluations(self):
        plan, folder = self.plan("dp2", "--gpus", "2", "--dp", "2"), self.folder / "board" / "one"
        run = self.train(plan, 3, "--tensorboard", folder, "--eval-data", self.text, "--eval-every", 2)
        events = self.events(folder)
        losses = [(step, value) for step, tag, value in events if tag == "loss"]
        self.assertEqual([step for step, _ in losses], [1, 2, 3])
        self.assert_close([value for _, value in losses], run["loss"], 1e-6)
        held_out = [(step, value) for step, tag, value in events if tag == "evaluation_loss"]
        self.assertEqual([step for step, _ in held_out], [2, 3])
        self.assert_close([value for _, value in held_out], [each["loss"] for each in run["evaluations"]], 1e-6)
        self.assertEqual({tag for _, tag, _ in events}, {"loss", "learning_rate", "tokens_per_s", "evaluation_loss", "perplexity"})
        self.text.with_name("file").write_text("")
        self.assertIn("cannot be written into", self.train(plan, 2, "--tensorboard", self.folder / "file", code=2))

    def test_pictures_vary_as_the_seed_draws_them_whatever_the_plan(self):
        def png(path, shade):
            def chunk(kind, data):
                return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            rows = b"".join(b"\0" + bytes((shade + 3 * x + 5 * y) % 256 for x in range(40)) for y in range(36))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 40, 36, 8, 0, 0, 0, 0)) +
                             chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
        pictures = self.folder / "pictures"
        for i in range(24):
            png(pictures / f"class{i % 3}" / f"{i}.PNG", 40 * (i % 3) + i)
        losses = {}
        for ranks in ("1", "2"):
            plan = self.folder / f"net{ranks}"
            self.done("plan", "mlp-300-100", "localhost", "--gpus", ranks, "--dp", ranks, "--global-batch", 8, "--precision", "fp32",
                      "--optimizer", "sgd", "--out", plan)
            for how in ("none", "flip", "crop-flip"):
                losses[ranks, how] = self.train(plan, 4, "--data", pictures, "--augment", how)["loss"]
        for how in ("none", "flip", "crop-flip"):
            self.assert_close(losses["2", how], losses["1", how], 1e-5)
        self.assertEqual(len({losses["1", how][0] for how in ("none", "flip", "crop-flip")}), 3)
        self.assertIn("--augment without pictures", self.train(plan, 1, "--augment", "flip", code=2))
        self.assertIn("--augment", self.train(plan, 1, "--data", pictures, "--augment", "rotate", code=2))
        damaged = pictures / "class1" / "1.PNG"
        damaged.write_bytes(damaged.read_bytes()[:90])
        self.assertIn("1.PNG: is no PNG picture", self.train(self.folder / "net1", 4, "--data", pictures, code=2))

    def test_a_tokenizer_json_says_what_tokens_are_and_what_hides_them(self):
        words = sorted({word.strip(".,").lower() for word in self.text.read_text().split()}) + list(",.")
        tokens = ["[UNK]", "[MASK]", *words]
        vocabulary = {token: i for i, token in enumerate(tokens)}
        tokenizer = {"normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
                     "added_tokens": [{"id": 1, "content": "[MASK]", "lstrip": True}],
                     "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": vocabulary}}
        (self.folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        # Models have a token for each byte at least.
        plans = {"bert": self.plan("bert", "--gpus", "2", "--tp", "2", model=BERT), "gpt2": self.plan("gpt2", "--gpus", "1")}
        for name, plan in plans.items():
            with self.subTest(name):
                run = self.train(plan, 3, "--data", self.text, "--vocab", self.folder / "tokenizer.json")
                folder = self.train(plan, 3, "--data", self.text, "--vocab", self.folder)
                self.assertEqual(run["loss"], folder["loss"])
                self.assertNotEqual(run["loss"], self.train(plan, 3, "--data", self.text)["loss"])
        tokenizer["model"]["vocab"]["far"] = 5000
        (self.folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.assertIn("has token 5000", self.train(plans["gpt2"], 1, "--data", self.text, "--vocab", self.folder, code=2))
        tokenizer["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": ""}
        (self.folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.assertIn("Precompiled", self.train(plans["gpt2"], 1, "--data", self.text, "--vocab", self.folder, code=2))

    def test_progress_is_said_beside_what_was_predicted(self):
        plan = self.plan("dp2", "--gpus", "2", "--dp", "2")
        said = self.orrery("run", plan, "--steps", 5, "--progress")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(said.stderr, r"orrery: NOTE: step 5 of 5: loss \d+\.\d+, .* tokens/s, .* left; .* a step, .* predicted")

    def test_tokens_of_megatron_llm_c_and_nanogpt_are_the_text_that_they_stand_for(self):
        plan = self.plan("one", "--gpus", "1")
        whole = self.train(plan, 3, "--data", self.text)["loss"]
        tokens = self.text.read_bytes()
        nano = self.folder / "nano.bin"
        nano.write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        llm = self.folder / "llm.bin"
        llm.write_bytes(struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253) + struct.pack(f"<{len(tokens)}H", *tokens))
        wide = self.folder / "wide.bin"
        wide.write_bytes(struct.pack("<256i", 20240801, 7, len(tokens), *[0] * 253) + struct.pack(f"<{len(tokens)}I", *tokens))
        files = [nano, llm, wide]
        for code, letter in ((1, "B"), (3, "h"), (4, "i"), (5, "q"), (8, "H")):
            data = self.folder / f"megatron{code}.bin"
            data.write_bytes(struct.pack(f"<{len(tokens)}{letter}", *tokens))
            # Two documents: lengths, places, and which sequences belong to which document.
            sizes, item = [1000, len(tokens) - 1000], struct.calcsize(letter)
            data.with_suffix(".idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, 2, 3) + struct.pack(
                "<2i", *sizes) + struct.pack("<2q", 0, 1000 * item) + struct.pack("<3q", 0, 1, 2))
            files.append(data)
        for file in files:
            with self.subTest(file.name):
                self.assertEqual(self.train(plan, 3, "--data", file)["loss"], whole)
        nano.write_bytes(nano.read_bytes() + b"\xff\xff" * 600)
        self.assertIn("the model has 259", self.train(plan, 99, "--data", nano, code=2))
        for name, content, what in (("odd.bin", b"abc", "inside a token"), ("cut.bin", llm.read_bytes()[:-2], "its header says"),
                                    ("none.bin", b"", "at least 17")):
            (self.folder / name).write_bytes(content)
            self.assertIn(what, self.train(plan, 1, "--data", self.folder / name, code=2))
        megatron = self.folder / "megatron4.bin"
        megatron.with_suffix(".idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 6, 2, 3))
        self.assertIn("type 6", self.train(plan, 1, "--data", megatron, code=2))
        megatron.with_suffix(".idx").write_bytes(b"no")
        self.assertIn("index", self.train(plan, 1, "--data", megatron, code=2))

    def test_the_order_of_batches_can_be_printed(self):
        plan = self.plan("dp2", "--gpus", "2", "--dp", "2")
        done = self.done("run", plan, "--data", self.text, "--steps", 100, "--print-batches")
        steps = [json.loads(line) for line in done.splitlines()]
        self.assertEqual([step["step"] for step in steps], list(range(1, 101)))
        begins = [begin for step in steps for begin in step["samples_begin"]]
        sequences = (len(self.text.read_bytes()) - 1) // 16
        self.assertEqual(sorted(begins[:sequences]), [16 * i for i in range(sequences)])
        self.assertNotEqual(begins[:100], begins[sequences:sequences + 100])


if __name__ == "__main__":
    unittest.main(verbosity=2)
