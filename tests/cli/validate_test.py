#!/usr/bin/env python3
"""The loop on one plan file, on a machine that says what it took for the reference operators on another day."""
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase


class Validate(OrreryCase):
    def validated(self, reference_s):
        described = self.folder / "here.textproto"
        self.done("discover", "--out", described)
        text, count = re.subn(r'(\n *kind: "cpu")', rf"\1\n reference_s: {reference_s}", described.read_text())
        self.assertEqual(count, 1)
        described.write_text(text)
        self.done("plan", "mlp-300-100", described, "--gpus", 2, "--dp", 2, "--global-batch", 8, "--precision", "fp32",
                  "--out", "plan.textproto")
        return self.json("validate", "plan.textproto", "--steps", 3)

    def test_the_machine_s_pace_stands_beside_the_error(self):
        result = self.validated(3600)  # no machine takes an hour
        pace = result["machine_pace"]
        self.assertGreater(min(pace["before"], pace["after"]), 100)
        for step_s in (result["measured"]["min"] * pace["least"], pace["step_time_s"]):
            self.assertLessEqual(step_s, result["measured"]["max"] * pace["most"])
        self.assertAlmostEqual(pace["relative_error"], result["predicted_step_time_s"] / pace["step_time_s"] - 1,
                               delta=1e-9)
        self.assertAlmostEqual(result["relative_error"],
                               result["predicted_step_time_s"] / result["measured_step_time_s"] - 1, delta=1e-9)
        self.assertIn('"machine_pace"', (self.folder / "data/history.jsonl").read_text())

    def take_as_long_as_predicted(self, times):
        """As if this machine had been so many times slower in each validation, whatever runs beside this test."""
        history = self.folder / "data/history.jsonl"
        entries = [json.loads(line) for line in history.read_text().splitlines()]
        for entry in entries:
            entry["measured_step_time_s"] = times * entry["predicted_step_time_s"]
            for kind in entry["by_kind"]:
                kind["measured_s"] = times * kind["predicted_s"]
        history.write_text("".join(json.dumps(entry) + "\n" for entry in entries))

    def test_what_was_validated_refits_the_calibration(self):
        self.done("discover", "--out", "here.textproto")
        plan = ["mlp-300-100", "--gpus", 1, "--global-batch", 64, "--precision", "fp32"]
        self.done("plan", plan[0], "here.textproto", *plan[1:], "--out", "plan.textproto")
        for _ in range(3):
            self.done("validate", "plan.textproto", "--steps", 5)
        self.take_as_long_as_predicted(3)
        found = self.json("calibrate", "here.textproto", "--from-history", "--out", "better.textproto")
        self.assertEqual(found["validations"], 3)
        self.assertEqual(found["communication"], 1)  # there was none
        self.assertLess(found["left_out_median_error"], found["median_error"])
        self.assertAlmostEqual(found["computation"], 3, delta=0.01)
        self.assertIn("refitted to 3 validations", (self.folder / "better.textproto").read_text())
        before = self.json("simulate", "plan.textproto")["step_time_s"]
        self.done("plan", plan[0], "better.textproto", *plan[1:], "--out", "again.textproto")
        after = self.json("simulate", "again.textproto")["step_time_s"]
        self.assertAlmostEqual(after / before, found["computation"], delta=0.05 * found["computation"])
        # Nothing was validated with the refitted one yet.
        self.refused("calibrate", "better.textproto", "--from-history", "--out", "third.textproto", code=3,
                     says="0 validations")

    def test_without_a_calibration_nothing_is_said_of_the_pace(self):
        self.assertNotIn("machine_pace", self.validated(0))

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "it would run on this machine's GPUs")
    def test_a_plan_for_gpus_says_that_processors_train_it(self):
        self.done("plan", "mlp-300-100", "dgx-a100", "--gpus", 2, "--global-batch", 8, "--out", "plan.textproto")
        result = self.orrery("validate", "plan.textproto", "--steps", 2)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"\Aorrery: NOTE: the plan is for a100-sxm-80g, and this machine without a GPU trains it on "
                                        r"\d+ processor cores?\n\Z")
        self.assertIn("this error says nothing of the prediction", re.sub(r"\s+", " ", result.stdout))
        self.assertFalse((self.folder / "data/history.jsonl").exists())
        self.assertEqual(self.orrery("run", "plan.textproto", "--steps", 2, "--backend", "mpi").stderr, "")

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "it would run on this machine's GPUs")
    def test_activations_that_no_processors_memory_holds_are_refused_before_anything_starts(self):
        self.done("plan", "gpt2", "dgx-a100", "--nodes", 16, "--global-batch", 8192, "--seq-len", 1024, "--dp", 128,
                  "--micro-batch", 64, "--out", "plan.textproto")
        for verb in ("validate", "run"):
            said = self.refused(verb, "plan.textproto", "--steps", 2, code=3, says=["128 ranks", "activations and buffers", "more would do"])
            state, other = (float(re.search(what + r" ([\d.]+)", said).group(1)) for what in ("states", "buffers"))
            self.assertGreater(other, 0)
            self.assertGreater(state, 0)


if __name__ == "__main__":
    unittest.main()
