#!/usr/bin/env python3
"""Checkpoints: a run goes on where it stopped, under the same plan bit by bit, under another as if it were one."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import ORRERY, OrreryCase, walked

GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 4, "n_head": 4, "n_positions": 32, "vocab_size": 259}


class TrainingCase(OrreryCase):
    def plan(self, name, *options, model=GPT2, optimizer="adam", batch=8):
        config = self.folder / f"{name}.json"
        config.write_text(json.dumps(model))
        self.done("plan", config, "localhost", "--global-batch", batch, "--seq-len", 16, "--precision", "fp32",
                  "--optimizer", optimizer, "--out", self.folder / name, *options)
        return self.folder / name

    def train(self, plan, steps, *options, code=0):
        """The JSON of a run."""
        out = self.folder / "run.json"
        result = self.orrery("run", plan, "--steps", steps, "--json", out, *options)
        self.assertEqual(result.returncode, code, result.stderr)
        return json.loads(out.read_text()) if code == 0 else result.stderr

    def assert_close(self, a, b, tolerance):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertLess(abs(x - y), tolerance * abs(y))


class Checkpoints(TrainingCase):
    def setUp(self):
        super().setUp()
        self.kept = self.folder / "kept"
        self.keep = ["--checkpoint-dir", self.kept, "--checkpoint-every", "2"]

    PLANS = {
        "dp2": ["--gpus", "2", "--dp", "2", "--zero", "0"],
        "zero1": ["--gpus", "2", "--dp", "2", "--zero", "1"],
        "zero3": ["--gpus", "2", "--dp", "2", "--zero", "3"],
        "tp2": ["--gpus", "2", "--tp", "2"],
        "pp2": ["--gpus", "2", "--pp", "2", "--micro-batch", "2"],
        "dualpipe": ["--gpus", "2", "--pp", "2", "--micro-batch", "2", "--schedule", "dualpipe-v"],
        "int8": ["--gpus", "2", "--dp", "2", "--grad-compression", "int8"],
        "topk": ["--gpus", "2", "--dp", "2", "--grad-compression", "topk:0.05"],
        "tp2dp2": ["--gpus", "4", "--tp", "2", "--dp", "2", "--zero", "1"],
    }

    def test_the_same_plan_goes_on_bit_by_bit(self):
        for name in walked(("zero1", "zero3", "tp2", "pp2", "int8", "topk"), 2):
            for optimizer in ("adam", "momentum", "sgd") if name == "zero1" else ("adam",):
                with self.subTest(f"{name} {optimizer}"):
                    plan = self.plan(name, *self.PLANS[name], optimizer=optimizer)
                    whole = self.train(plan, 5)
                    folder = self.folder / f"{name}-{optimizer}"
                    options = ["--checkpoint-dir", folder]
                    first = self.train(plan, 3, *options, "--checkpoint-every", 3)
                    rest = self.train(plan, 5, *options, "--restart")
                    self.assertEqual(rest["first_step"], 3)
                    self.assertEqual(first["loss"] + rest["loss"], whole["loss"])
                    self.assertEqual(rest["parameters_digest"], whole["parameters_digest"])

    def test_another_plan_goes_on_as_if_it_were_one(self):
        whole = self.train(self.plan("one", "--gpus", "1", "--micro-batch", "8"), 4)
        for before, after in walked((("zero1", "tp2"), ("tp2", "pp2"), ("pp2", "dualpipe"), ("dualpipe", "zero3"),
                                     ("zero3", "tp2dp2"), ("tp2dp2", "dp2")), 2):
            with self.subTest(f"{before} to {after}"):
                folder = self.folder / f"{before}-{after}"
                options = ["--checkpoint-dir", folder]
                self.train(self.plan(before, *self.PLANS[before]), 2, *options, "--checkpoint-every", 2)
                rest = self.train(self.plan(after, *self.PLANS[after]), 4, *options, "--restart")
                self.assert_close(rest["loss"], whole["loss"][2:], 1e-4)

    def test_only_the_newest_two_are_kept_and_nothing_half_written(self):
        self.train(self.plan("dp2", *self.PLANS["dp2"]), 6, *self.keep)
        self.assertEqual(sorted(path.name for path in self.kept.iterdir()), ["step-00000004", "step-00000006"])

    def test_a_rank_that_is_killed_leaves_a_checkpoint_to_go_on_from(self):
        plan = self.plan("dp2", *self.PLANS["dp2"])
        done = self.kill_a_rank(plan)
        rest = self.train(plan, done + 2, "--checkpoint-dir", self.kept, "--restart")
        self.assertEqual(rest["first_step"], done)
        self.assertEqual(rest["loss"], self.train(plan, done + 2)["loss"][done:])

    def test_asynchronous_servers_go_on_from_a_consistent_state_also_synchronously_and_after_a_kill(self):
        servers = self.plan("servers", "--gpus", "2", "--dp", "2", "--sync", "async-parameter-server", "--servers", "1",
                            "--staleness", "2")
        first = self.train(servers, 4, *self.keep)
        self.assertEqual(sum(first["asynchronous"]["batches_of_ranks"]), 8)
        self.assertLessEqual(first["asynchronous"]["most_steps_ahead"], 2)
        for plan in (servers, self.plan("dp2", *self.PLANS["dp2"])):
            rest = self.train(plan, 6, "--checkpoint-dir", self.kept, "--restart")
            self.assertEqual(rest["first_step"], 4)
            self.assertEqual(len(rest["loss"]), 2)
            self.assertLess(rest["loss"][0], first["loss"][0])
        for path in list(self.kept.iterdir()):
            shutil.rmtree(path)
        done = self.kill_a_rank(servers)
        self.assertEqual(self.train(servers, done + 2, "--checkpoint-dir", self.kept, "--restart")["first_step"], done)

    def kill_a_rank(self, plan):
        """The steps of the newest checkpoint that a job of two ranks leaves of which one is killed."""
        job = subprocess.Popen([ORRERY, "run", plan, "--steps", "1000000", "--checkpoint-dir", self.kept,
                                "--checkpoint-every", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=self.environment, cwd=self.folder)
        self.addCleanup(job.kill)
        ranks = self.two_ranks_of(job)
        os.kill(ranks[1], signal.SIGKILL)
        begin = time.monotonic()
        out, error = job.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(job.returncode, 1)
        self.assertIn("signal 9", error)
        self.assertEqual(len([line for line in error.splitlines() if line.startswith("orrery: ") and not line.startswith("orrery: NOTE: ")]), 1, error)
        finished = sorted(path for path in self.kept.iterdir() if not path.name.endswith(".partial"))
        self.assertTrue(finished)
        for path in finished:
            manifest = json.loads((path / "manifest.json").read_text())
            for file in manifest["files"]:
                self.assertEqual((path / file["file"]).stat().st_size, file["bytes"])
        return json.loads((finished[-1] / "manifest.json").read_text())["steps"]

    def two_ranks_of(self, job):
        """The processes of a job of two ranks, once it has written a checkpoint."""
        until = time.monotonic() + 60
        while not list(self.kept.glob("step-*[0-9]")) and time.monotonic() < until:
            time.sleep(0.02)
        ranks = self.ranks_below(job.pid)
        self.assertEqual(len(ranks), 2)
        return ranks

    def ranks_below(self, process):
        """Executors among the descendants of a process, in order of their ids."""
        children = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                text = stat.read_text()
            except OSError:
                continue
            fields = text[text.rindex(")") + 2:].split()
            children.setdefault(int(fields[1]), []).append((int(stat.parent.name), text[text.index("(") + 1:text.rindex(")")]))
        found, left = [], [process]
        while left:
            for child, name in children.get(left.pop(), []):
                left.append(child)
                if name.startswith("orrery-exec"):
                    found.append(child)
        return sorted(found)

    def test_a_damaged_checkpoint_is_named_and_the_newest_whole_one_is_used(self):
        plan = self.plan("dp2", *self.PLANS["dp2"])
        self.train(plan, 4, *self.keep)
        newest = self.kept / "step-00000004" / "rank-00000.bin"
        whole = newest.read_bytes()
        again = ["--checkpoint-dir", self.kept]

        def passed_over(what):
            result = self.orrery("run", plan, "--steps", 5, "--json", self.folder / "run.json", *again, "--restart")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(json.loads((self.folder / "run.json").read_text())["first_step"], 2)
            self.assertIn(what, result.stderr)
            self.assertIn("step-00000004", self.train(plan, 5, *again, "--restart-from", 4, code=2))

        newest.write_bytes(whole[:-4])
        passed_over("another size")
        newest.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        passed_over("check sum")
        newest.write_bytes(whole)
        manifest = newest.parent / "manifest.json"
        text = manifest.read_text()
        for before, after in (('"updates":4', '"updates":5'), ('"offset":0', '"offset":4'), ('"seed":', '"seed":1'),
                              ('"batches":4', '"batches":9')):
            self.assertTrue(before in text, before)
            manifest.write_text(text.replace(before, after, 1))
            passed_over("check sum")
        manifest.write_text("{")
        passed_over("manifest.json")
        manifest.write_text(text)
        self.assertEqual(self.train(plan, 5, *again, "--restart")["first_step"], 4)
        self.assertEqual(self.train(plan, 5, *again, "--restart-from", 2)["first_step"], 2)
        self.assertIn("no such checkpoint", self.train(plan, 5, *again, "--restart-from", 3, code=2))
        for part in self.kept.glob("step-*/rank-00000.bin"):
            part.write_bytes(b"")
        self.assertIn("no checkpoint", self.train(plan, 5, *again, "--restart", code=2))

    def test_the_folder_is_tried_before_anything_is_trained(self):
        plan = self.plan("one", "--gpus", "1")
        file = self.folder / "file"
        file.write_text("")
        log = self.folder / "log.jsonl"
        said = self.train(plan, 4, "--checkpoint-dir", file / "kept", "--checkpoint-every", 4, "--log", log, code=2)
        self.assertIn("file/kept: cannot be written: Not a directory", said)
        self.assertFalse(log.exists() and log.read_text())

    def test_other_data_and_other_batches_are_said_and_gone_on_with(self):
        data = self.folder / "text"
        data.write_text("a text to learn by heart " * 200)
        plan = self.plan("one", "--gpus", "1")
        self.train(plan, 2, *self.keep, "--data", data)
        go_on = lambda plan, *more: self.orrery("run", plan, "--steps", 3, "--checkpoint-dir", self.kept, "--restart", *more)
        same = go_on(plan, "--data", data)
        self.assertNotIn("was trained", same.stderr)
        other = go_on(plan)
        self.assertEqual(other.returncode, 0)
        self.assertRegex(other.stderr, "orrery: NOTE: .*was trained on .*/text, not /usr/.*GPL-3")
        batch = go_on(self.plan("batch", "--gpus", "1", batch=4), "--data", data)
        self.assertIn("with a global batch of 8, not 4", batch.stderr)
        data.write_text("another text " * 500)
        self.assertIn("text as it was then", go_on(plan, "--data", data).stderr)
        # Checkpoints of before these were kept.
        manifest = self.kept / "step-00000002" / "manifest.json"
        kept = json.loads(manifest.read_text())
        for key in ("data", "global_batch", "seq_len", "check_sum"):
            del kept[key]
        text = json.dumps(kept, separators=(",", ":"), ensure_ascii=False)
        sum_ = 0xCBF29CE484222325
        for byte in text.encode():
            sum_ = (sum_ ^ byte) * 0x100000001B3 % 2**64
        manifest.write_text(json.dumps({**kept, "check_sum": f"{sum_:016x}"}))
        old = go_on(plan, "--data", data)
        self.assertEqual(old.returncode, 0, old.stderr)
        self.assertNotIn("was trained", old.stderr)

    def test_who_ends_the_run_ends_its_ranks(self):
        plan = self.plan("dp2", *self.PLANS["dp2"])
        for asked, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129), (signal.SIGKILL, -9)):
            with self.subTest(asked):
                job = subprocess.Popen([ORRERY, "run", plan, "--steps", "1000000", *self.keep], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env=self.environment, cwd=self.folder)
                self.addCleanup(job.kill)
                ranks = self.two_ranks_of(job)
                os.kill(job.pid, asked)
                self.assertEqual(job.wait(timeout=20), code)
                until = time.monotonic() + 20
                while any(os.path.exists(f"/proc/{rank}") for rank in ranks) and time.monotonic() < until:
                    time.sleep(0.02)
                self.assertFalse([rank for rank in ranks if os.path.exists(f"/proc/{rank}")])
                shutil.rmtree(self.kept)

    def test_options_without_effect_are_refused(self):
        plan = self.plan("adamw", "--gpus", "1", optimizer="adamw")
        for words in (["--decay-steps", 2], ["--least-rate", "0.1"], ["--momentum", "0.9"], ["--warmup-steps", 5],
                      ["--rate-schedule", "cosine", "--decay-steps", 2]):
            self.assertIn(words[-2], self.train(plan, 4, *words, code=2))
        self.train(plan, 4, "--rate-schedule", "wsd", "--decay-steps", 2, "--least-rate", "0.1", "--warmup-steps", 2)
        self.assertIn("--beta1", self.train(self.plan("sgd", "--gpus", "1", optimizer="sgd"), 1, "--beta1", "0.8", code=2))

    def test_what_a_killed_run_left_behind_goes_with_the_next_checkpoint(self):
        plan = self.plan("dp2", *self.PLANS["dp2"])
        left = self.kept / "step-00000007.partial"
        left.mkdir(parents=True)
        (left / "rank-00000.bin").write_bytes(b"x")
        (self.kept / "mine").mkdir()
        self.train(plan, 2, *self.keep)
        self.assertEqual(sorted(path.name for path in self.kept.iterdir()), ["mine", "step-00000002"])

    def test_a_full_disk_ends_the_run_and_leaves_nothing_half_written(self):
        plan = self.plan("dp2", *self.PLANS["dp2"])
        self.assertIn("/dev/full: cannot be written: No space left", self.train(plan, 3, "--log", "/dev/full", code=2))
        self.kept.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", self.kept], capture_output=True).returncode != 0:
            self.skipTest("no file system may be mounted here")
        try:
            inside = self.kept / "checkpoints"
            said = self.train(plan, 4, "--checkpoint-dir", inside, "--checkpoint-every", 2, code=2)
            self.assertRegex(said, "rank-0000[01].bin: cannot be written: No space left on device")
            self.assertEqual(list(inside.iterdir()), [])
            self.assertIn("No space left on device", self.train(plan, 1, "--save", self.kept / "weights.safetensors", code=2))
            self.assertEqual([path.name for path in self.kept.iterdir()], ["checkpoints"])
        finally:
            subprocess.run(["umount", self.kept], check=True)

    def test_a_loss_that_is_no_number_ends_the_run_or_is_left_out_and_counted(self):
        plan = self.plan("sgd", *self.PLANS["dp2"], optimizer="sgd")
        wild = ["--learning-rate", "1e20"]
        said = self.train(plan, 8, *wild, code=1)
        self.assertRegex(said, r"the loss of step \d is not finite on rank [01]: transformer\.\S+ is the first")
        self.assertIn("--on-nan skip", said)
        kept = self.train(plan, 8, *wild, "--on-nan", "skip")
        self.assertGreater(kept["skipped_steps"], 0)
        said = self.orrery("run", plan, "--steps", 8, *wild, "--on-nan", "skip").stdout
        self.assertRegex(said, rf"skipped {kept['skipped_steps']} steps? whose gradients were not finite")
        self.assertEqual(self.train(plan, 3)["skipped_steps"], 0)

    def test_no_checkpoint_and_no_weights_are_made_of_what_is_no_number(self):
        plan = self.plan("adamw", *self.PLANS["dp2"], optimizer="adamw")
        self.train(plan, 2, *self.keep)
        # The update of the only step breaks the weights, and no loss is computed with them.
        wild = ["--learning-rate", "1e10", "--weight-decay", "1e30"]
        self.train(plan, 1, *wild)
        said = self.train(plan, 3, "--checkpoint-dir", self.kept, "--checkpoint-every", 1, "--restart", *wild, code=1)
        self.assertRegex(said, r"weight of transformer\.\S+ is not finite after step 3 on rank [01]: no checkpoint")
        self.assertEqual(self.train(plan, 3, "--checkpoint-dir", self.kept, "--restart")["first_step"], 2)
        saved = self.folder / "weights.safetensors"
        said = self.train(plan, 1, *wild, "--save", saved, code=1)
        self.assertRegex(said, r"weight of transformer\.\S+ is not finite at the end on rank [01]: nothing is saved")
        self.assertEqual([path.name for path in self.folder.glob("weights*")], [])

    def test_a_worker_of_asynchronous_servers_whose_loss_is_no_number_ends_the_run(self):
        plan = self.plan("servers", "--gpus", "2", "--dp", "2", "--sync", "async-parameter-server", "--servers", "1",
                         optimizer="sgd")
        said = self.train(plan, 20, "--learning-rate", "1e20", code=1)
        self.assertRegex(said, r"the loss of step \d+ is not finite on rank [01]")
        self.assertNotIn("--on-nan", said)

    def test_another_seed_is_refused(self):
        plan = self.plan("dp2", *self.PLANS["dp2"])
        self.train(plan, 2, *self.keep, "--seed", 5)
        said = self.train(plan, 4, "--checkpoint-dir", self.kept, "--restart", "--seed", 6, code=2)
        self.assertIn("was trained with seed 5 (expected the same, not --seed 6)", said)
        self.assertEqual(said.count("was trained with"), 1)
        self.assertEqual(self.train(plan, 4, "--checkpoint-dir", self.kept, "--restart", "--seed", 5)["first_step"], 2)

    def test_what_cannot_be_gone_on_with_is_said(self):
        plan = self.plan("dp2", *self.PLANS["dp2"])
        first = self.orrery("run", plan, "--steps", 2, *self.keep, "--restart")  # nothing there yet
        self.assertEqual((first.returncode, first.stderr), (0, f"orrery: NOTE: {self.kept} has no checkpoint: training begins with step 1\n"))
        self.train(plan, 2, "--checkpoint-dir", self.kept, "--restart", code=3)
        said = self.train(self.plan("sgd", *self.PLANS["dp2"], optimizer="sgd"), 4, "--checkpoint-dir", self.kept,
                          "--restart", code=2)
        self.assertIn("adam", said)
        other = self.plan("wide", *self.PLANS["dp2"], model={**GPT2, "n_embd": 64})
        self.assertIn("size", self.train(other, 4, "--checkpoint-dir", self.kept, "--restart", code=2))
        self.assertIn("--checkpoint-dir", self.train(plan, 4, "--restart", code=2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
