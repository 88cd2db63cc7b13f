#!/usr/bin/env python3
"""Weights in and out under Hugging Face's names, held against a reader and writer of the format in ten lines."""
import array
import json
import math
import os
import random
import struct
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from checkpoint_test import GPT2, TrainingCase
from orrery_case import SOURCE

LLAMA = {"model_type": "llama", "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 32, "vocab_size": 259,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0}


def read(path):
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32"
        begin, end = entry["data_offsets"]
        values = array.array("f", data[8 + length + begin:8 + length + end])
        assert len(values) == math.prod(entry["shape"])
        tensors[name] = (entry["shape"], values)
    return tensors


def write(path, tensors, dtype="F32"):
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, (shape, values) in tensors.items():
        if dtype == "F32":
            raw = array.array("f", values).tobytes()
        elif dtype == "BF16":
            raw = b"".join(array.array("f", [value]).tobytes()[2:] for value in values)
        else:
            raw = struct.pack(f"<{len(values)}e", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class Safetensors(TrainingCase):
    def saved(self, name, *options, model=GPT2):
        plan = self.plan(name, *options, model=model, optimizer="sgd")
        file = self.folder / f"{name}.safetensors"
        return plan, file, self.train(plan, 2, "--save", file)

    def test_what_is_saved_is_the_model_under_its_names(self):
        for name, options, model in (("dp", ["--gpus", "2", "--dp", "2", "--zero", "3"], GPT2),
                                     ("tp", ["--gpus", "4", "--tp", "2", "--pp", "2"], GPT2),
                                     ("llama", ["--gpus", "2", "--tp", "2"], LLAMA)):
            with self.subTest(name):
                plan, file, result = self.saved(name, *options, model=model)
                tensors = read(file)
                self.assertEqual(sorted(tensors), sorted(result["parameters_digest"]))
                for key, (shape, values) in tensors.items():
                    norm = math.sqrt(math.fsum(value * value for value in values))
                    self.assertAlmostEqual(norm, result["parameters_digest"][key]["norm"], delta=1e-6 * norm + 1e-9)
                self.assertEqual(tensors["transformer.h.0.attn.c_attn.weight"][0] if model is GPT2 else
                                 tensors["model.layers.0.self_attn.k_proj.weight"][0],
                                 [48, 144] if model is GPT2 else [24, 48])

    def test_a_folder_holds_what_transformers_loads(self):
        """Weights by a checked-in list of names and shapes; config.json is the model's own again."""
        known = json.loads((SOURCE / "tests/data/huggingface_tensors.json").read_text())
        bert = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 32, "intermediate_size": 48,
                "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 259, "max_position_embeddings": 64}
        models = {"GPT2LMHeadModel": (GPT2, ["--gpus", "2", "--tp", "2"]), "LlamaForCausalLM": (LLAMA, ["--gpus", "2", "--pp", "2"]),
                  "Qwen3ForCausalLM": ({**LLAMA, "model_type": "qwen3", "head_dim": 16}, ["--gpus", "2", "--dp", "2", "--zero", "3"]),
                  "MixtralForCausalLM": ({**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
                                         ["--gpus", "2", "--dp", "2", "--ep", "2"]),
                  "BertForMaskedLM": (bert, ["--gpus", "2", "--tp", "2"])}
        for name, (model, options) in models.items():
            with self.subTest(name):
                folder = self.folder / name / "made"
                plan = self.plan(f"plan-{name}", *options, model=model, optimizer="sgd")
                self.train(plan, 1, "--learning-rate", "1e-30", "--save", f"{folder}/")
                self.assertEqual(sorted(path.name for path in folder.iterdir()), ["config.json", "model.safetensors"])
                config = json.loads((folder / "config.json").read_text())
                self.assertEqual(config["architectures"], [name])
                hidden = config.get("hidden_size", config.get("n_embd"))
                heads = config.get("num_attention_heads", config.get("n_head"))
                dim = config.get("head_dim", hidden // heads)
                sizes = {"v": 259, "h": hidden, "d": dim, "q": heads * dim, "k": config.get("num_key_value_heads", heads) * dim,
                         "p": config.get("max_position_embeddings", config.get("n_positions")), "e": config.get("num_local_experts", 1),
                         "f": config.get("intermediate_size", config.get("n_inner")), "t": 2, "3h": 3 * hidden}
                expected = {}
                for pattern, shape in known[name].items():
                    if pattern == "lm_head.weight" and config["tie_word_embeddings"]:
                        continue
                    shape = [sizes[part] for part in (shape.split() if "3" in shape else shape)]
                    for layer in range(config.get("num_hidden_layers", config.get("n_layer"))) if ".N." in pattern else [0]:
                        for expert in range(sizes["e"]) if ".X." in pattern else [0]:
                            expected[pattern.replace(".N.", f".{layer}.").replace(".X.", f".{expert}.")] = shape
                self.assertEqual({key: shape for key, (shape, _) in read(folder / "model.safetensors").items()}, expected)
                # Read again, it is the same model: the same losses from the same weights.
                again = self.plan(f"again-{name}", *options, model=config, optimizer="sgd")
                self.assertEqual(self.train(again, 2, "--init", folder)["loss"], self.train(plan, 2, "--init", folder)["loss"])
        said = self.train(plan, 1, "--save", self.folder / "nowhere" / "x.safetensors", code=2)
        self.assertIn("x.safetensors: cannot be written: No such file", said)

    def test_adapters_in_a_folder_are_what_peft_loads(self):
        plan = self.plan("lora", "--gpus", "2", "--dp", "2", "--lora-rank", 4)
        folder = self.folder / "adapters"
        result = self.orrery("run", plan, "--steps", 1, "--save", f"{folder}/")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(sorted(path.name for path in folder.iterdir()), ["adapter_config.json", "adapter_model.safetensors"])
        self.assertTrue(all("lora_" in name for name in read(folder / "adapter_model.safetensors")))

    def test_devices_and_links_stay_what_they_are(self):
        plan = self.plan("one", "--gpus", "1")
        pipe, link = self.folder / "pipe", self.folder / "link"
        os.mkfifo(pipe)
        with open(self.folder / "through", "wb") as through:
            reader = subprocess.Popen(["cat", pipe], stdout=through)
        self.addCleanup(reader.kill)
        self.train(plan, 1, "--save", pipe)
        self.assertEqual(reader.wait(timeout=60), 0)
        self.assertTrue(pipe.is_fifo())
        link.symlink_to("weights.safetensors")
        self.train(plan, 1, "--save", link)
        self.assertTrue(link.is_symlink())
        self.assertEqual((self.folder / "weights.safetensors").read_bytes(), (self.folder / "through").read_bytes())

    def test_every_plan_starts_from_the_same_file_alike(self):
        plan, file, result = self.saved("dp", "--gpus", "2", "--dp", "2")
        reference = self.train(self.plan("one", "--gpus", "1", optimizer="sgd"), 2, "--init", file)
        self.assertNotEqual(reference["loss"], result["loss"])
        for options in (["--gpus", "2", "--dp", "2", "--zero", "3"], ["--gpus", "4", "--tp", "2", "--pp", "2"]):
            other = self.train(self.plan("other", *options, optimizer="sgd"), 2, "--init", file)
            self.assert_close(other["loss"], reference["loss"], 1e-4)

    def test_a_save_of_what_was_loaded_is_the_same_bytes(self):
        plan, file, _ = self.saved("tp", "--gpus", "2", "--tp", "2", model=LLAMA)
        # A learning rate cannot be set to zero here, so compare what two plans save after the same start and one step.
        again = self.folder / "again.safetensors"
        self.train(plan, 1, "--init", file, "--save", again)
        twice = self.folder / "twice.safetensors"
        self.train(plan, 1, "--init", file, "--save", twice)
        self.assertEqual(again.read_bytes(), twice.read_bytes())

    def test_half_precision_files_folders_and_names_without_a_prefix(self):
        plan, file, _ = self.saved("dp", "--gpus", "2", "--dp", "2")
        tensors = read(file)
        draw = random.Random(1)
        # Values that all three types hold exactly: multiples of 1/64 below 1/2.
        exact = {name: (shape, [draw.randrange(-8, 9) / 64 for _ in values]) for name, (shape, values) in tensors.items()}
        write(file, exact)
        expected = self.train(plan, 2, "--init", file)["loss"]
        for dtype in ("BF16", "F16"):
            write(self.folder / "half.safetensors", exact, dtype)
            self.assertEqual(self.train(plan, 2, "--init", self.folder / "half.safetensors")["loss"], expected)
        folder = self.folder / "model"
        folder.mkdir()
        bare = {name.removeprefix("transformer."): value for name, value in exact.items()}
        bare["h.0.attn.bias"] = ([1, 1], [1.0])  # a mask that old files carry
        write(folder / "model.safetensors", bare)
        self.assertEqual(self.train(plan, 2, "--init", folder)["loss"], expected)
        names = list(exact)
        halves = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
        (folder / "model.safetensors").unlink()
        for part, keys in halves.items():
            write(folder / part, {key: exact[key] for key in keys})
        (folder / "model.safetensors.index.json").write_text(json.dumps(
            {"weight_map": {key: part for part, keys in halves.items() for key in keys}}))
        self.assertEqual(self.train(plan, 2, "--init", folder)["loss"], expected)

    def test_files_that_do_not_fit_are_one_line(self):
        plan, file, _ = self.saved("dp", "--gpus", "2", "--dp", "2")
        tensors = read(file)
        bad = self.folder / "bad.safetensors"
        missing = dict(tensors)
        del missing["transformer.ln_f.weight"]
        write(bad, missing)
        self.assertIn("transformer.ln_f.weight", self.said(plan, bad))
        write(bad, {**tensors, "transformer.ln_f.weight": ([24, 2], tensors["transformer.ln_f.weight"][1])})
        self.assertIn("[24, 2]", self.said(plan, bad))
        whole = file.read_bytes()
        bad.write_bytes(whole[:len(whole) // 2])
        self.assertIn("lies at bytes", self.said(plan, bad))
        bad.write_bytes(struct.pack("<Q", 1 << 60) + whole[8:])
        self.assertIn("header", self.said(plan, bad))
        bad.write_bytes(struct.pack("<Q", 4) + b"{\"a\"")
        self.assertIn("JSON", self.said(plan, bad))
        self.assertIn("opened", self.said(plan, self.folder / "nothing"))

    def test_weights_that_find_no_space_leave_nothing_behind(self):
        disk = self.folder / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True).returncode != 0:
            self.skipTest("no small disk can be made here (root may)")
        try:
            plan = self.plan("dp", "--gpus", "2", "--dp", "2", model=GPT2, optimizer="sgd")
            self.assertIn("No space left on device", self.train(plan, 1, "--save", disk / "weights.safetensors", code=2))
            self.assertEqual(list(disk.iterdir()), [])
        finally:
            subprocess.run(["umount", disk], check=True)

    def said(self, plan, file):
        error = self.train(plan, 2, "--init", file, code=2)
        self.assertEqual(len([line for line in error.splitlines() if line.startswith("orrery: ")]), 1, error)
        return error


if __name__ == "__main__":
    unittest.main(verbosity=2)
