#!/usr/bin/env python3
"""The loop on one plan file, on a machine that says what it took for the reference operators on another day."""
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

    def test_without_a_calibration_nothing_is_said_of_the_pace(self):
        self.assertNotIn("machine_pace", self.validated(0))


if __name__ == "__main__":
    unittest.main()
