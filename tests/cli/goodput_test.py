#!/usr/bin/env python3
"""`orrery goodput`: a whole run on devices that fail; its fields, its laws, and what it refuses."""
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase

GPT2 = {"model_type": "gpt2", "n_embd": 48, "n_layer": 4, "n_head": 4, "n_positions": 32, "vocab_size": 260}
LOST = ["checkpoint", "rework", "detect", "restart", "wait", "degraded"]
ASKED = ["--steps", "1e6", "--mtbf-device-hours", "500", "--detect-s", "30", "--restart-s", "60"]


class Goodput(OrreryCase):
    def setUp(self):
        super().setUp()
        self.plan = self.folder / "plan"
        self.done("plan", "gpt2", "dgx-a100", "--nodes", "4", "--global-batch", "48", "--seq-len", "512", "--tp", "4",
                  "--pp", "2", "--dp", "4", "--micro-batch", "1", "--zero", "1", "--schedule", "1f1b", "--out", self.plan)

    def goodput(self, *options, asked=ASKED):
        return self.json("goodput", self.plan, *asked, *options)

    def check(self, answer):
        total = answer["time_to_train_s"]["mean"]
        self.assertEqual(list(answer["lost_s"]), LOST)
        self.assertAlmostEqual(answer["ideal_s"] + sum(answer["lost_s"].values()), total, delta=1e-6 * total)
        self.assertAlmostEqual(answer["goodput"], answer["ideal_s"] / total, delta=1e-9)
        self.assertAlmostEqual(answer["ideal_s"], answer["steps"] * answer["step_time_s"], delta=1e-6 * total)
        self.assertTrue(0 < answer["goodput"] <= 1)
        self.assertTrue(0 < answer["closed_form"]["goodput"] <= 1)
        for key in ("time_to_train_s", "interruptions"):
            spread = answer[key]
            self.assertLessEqual(spread["p5"], spread["p50"])
            self.assertLessEqual(spread["p50"], spread["p95"])
        self.assertGreater(answer["cost_usd"], 0)
        self.assertGreater(answer["energy_j"], 0)
        for name, middle in (("days", answer["time_to_train_s"]["p50"] / 86400), ("usd", answer["cost_usd"]),
                             ("mwh", answer["energy_j"] / 3.6e9), ("goodput", answer["goodput"])):
            self.assertLess(answer[name + "_low"], middle, name)
            self.assertGreater(answer[name + "_high"], middle, name)
        self.assertTrue(answer["step_time_low_s"] < answer["step_time_s"] < answer["step_time_high_s"])

    def test_the_step_is_the_simulators_and_the_two_models_agree(self):
        answer = self.goodput()
        self.check(answer)
        simulated = self.json("simulate", self.plan)
        for field in ("step_time_s", "rests_on", "narrowed_by"):
            self.assertEqual(answer[field], simulated[field], field)
        for field in ("step_time_low_s", "step_time_high_s"):
            self.assertAlmostEqual(answer[field] / simulated[field], 1, delta=1e-9)
        text = self.done("goodput", self.plan, *ASKED, "--wide")
        self.assertRegex(text, r"90% interval, .*: .* to .* USD, .* MWh, goodput .*\. This rests on: runtime \w+, device fitted")
        self.assertAlmostEqual(answer["mtti_s"], 500 * 3600 / 32, delta=1e-6)
        mean = answer["time_to_train_s"]["mean"]
        self.assertLess(abs(mean - answer["closed_form"]["time_to_train_s"]), 4 * answer["time_to_train_error_s"])
        expected = mean / answer["mtti_s"]
        self.assertLess(abs(answer["interruptions"]["mean"] - expected), 5 * (expected / answer["runs"]) ** 0.5)
        # Twice or half the interval loses more.
        others = {other["key"]: other for other in answer["alternatives"]}
        for key in ("checkpoint_interval_halved", "checkpoint_interval_doubled"):
            self.assertGreater(others[key]["closed_form_s"], answer["closed_form"]["time_to_train_s"])
        self.assertLess(others["storage_bandwidth_x2"]["closed_form_s"], answer["closed_form"]["time_to_train_s"])

    def test_how_long_the_run_is(self):
        for option, amount in (("--tokens", 48 * 512 * 999.5), ("--samples", 48 * 999 + 1), ("--steps", 1000)):
            self.assertEqual(self.goodput(asked=[option, amount, "--mtbf-device-hours", "500"])["steps"], 1000, option)

    def test_the_more_fails_the_less_is_done_and_next_to_nothing_fails_next_to_nothing_is_lost(self):
        goodputs = [self.goodput(asked=["--steps", "1e6", "--mtbf-device-hours", hours, "--restart-s", "100"])["goodput"]
                    for hours in ("20", "100", "1000", "1e12")]
        self.assertEqual(goodputs, sorted(goodputs))
        steps = ["--steps", "1000", "--mtbf-device-hours", "1e12"]
        quiet = self.goodput("--checkpoint-every", "10", "--checkpoint-s", "2", asked=steps)
        self.assertAlmostEqual(quiet["goodput"], quiet["ideal_s"] / (quiet["ideal_s"] + 100 * 2), delta=1e-9)
        self.assertEqual(quiet["interruptions"]["mean"], 0)

    def test_nodes_fail_too_and_bandwidth_is_what_is_given(self):
        answer = self.goodput("--mtbf-node-hours", "1000", "--checkpoint-bandwidth", "1e9")
        self.check(answer)
        self.assertAlmostEqual(answer["mtti_s"], 3600 / (32 / 500 + 4 / 1000), delta=1e-6)
        self.assertAlmostEqual(answer["checkpoint_s"], answer["checkpoint_bytes"] / 1e9)
        self.assertAlmostEqual(answer["checkpoint_read_s"], answer["checkpoint_bytes"] / 1e9)
        beside = self.goodput("--mtbf-node-hours", "1000", "--checkpoint-bandwidth", "1e9", "--checkpoint-async")
        self.assertLess(beside["checkpoint_s"], 0.1 * beside["checkpoint_write_s"])
        self.assertGreater(beside["goodput"], answer["goodput"])

    def test_spares_elasticity_and_the_same_answer_whatever_the_jobs(self):
        repairs = ["--repair-hours", "20"]
        waits = self.goodput(*repairs)
        self.check(waits)
        self.assertGreater(waits["lost_s"]["wait"], 0)
        spared = self.goodput(*repairs, "--spares", "2")
        self.check(spared)
        self.assertGreater(spared["goodput"], waits["goodput"])
        self.assertEqual([other["spares"] for other in waits["alternatives"] if other["key"].startswith("spares_")][:2],
                         [1, 2])
        elastic = self.goodput(*repairs, "--elastic", "--jobs", "1")
        self.check(elastic)
        self.assertGreater(elastic["lost_s"]["degraded"], 0)
        self.assertGreater(elastic["goodput"], waits["goodput"])
        self.assertEqual([plan["nodes"] for plan in elastic["plans"]], [4, 3, 2, 1])
        self.assertEqual(elastic, self.goodput(*repairs, "--elastic", "--jobs", "2"))
        self.assertNotEqual(waits["time_to_train_s"], self.goodput(*repairs, "--seed", "2")["time_to_train_s"])
        self.assertIn("alternative", self.done("goodput", self.plan, *ASKED, *repairs, "--elastic"))

    def test_the_sentence_and_the_table_name_the_same_cheapest_spares(self):
        asked = ["--steps", "3e4", "--mtbf-device-hours", "100", "--detect-s", "60", "--restart-s", "300", "--repair-hours",
                 "12", "--spares", "1"]
        answer, text = self.goodput(asked=asked), self.done("goodput", self.plan, *asked, "--wide")
        self.assertIn(" of training on average (none while it waits for a node), ", text)
        costs = {1: answer["cost_usd"]}
        costs |= {one["spares"]: one["cost_usd"] for one in answer["alternatives"] if one["key"].startswith("spares_")}
        cheapest = min(costs, key=costs.get)
        said = re.search(r"The cheapest number of spare nodes is (\d+)( for this run, .* and (\d+) in the long run)?\.", text)
        self.assertEqual(int(said.group(1)), cheapest)
        self.assertEqual(int(said.group(3) or said.group(1)), answer["cheapest_spares"])
        spread = answer["time_to_train_s"]
        self.assertEqual("pull the average outside" in text, not spread["p5"] <= spread["mean"] <= spread["p95"])

    def test_a_checkpoint_is_as_large_as_the_executors(self):
        config = self.folder / "gpt2.json"
        config.write_text(json.dumps(GPT2))
        for optimizer, choices in (("adam", ["--tp", "2"]), ("momentum", ["--dp", "2", "--zero", "1"]),
                                   ("sgd", ["--pp", "2", "--micro-batch", "2"])):
            with self.subTest(optimizer):
                plan, kept = self.folder / optimizer, self.folder / f"{optimizer}-kept"
                self.done("plan", config, "localhost", "--gpus", "2", "--global-batch", "8", "--seq-len", "16", "--precision",
                          "fp32", "--optimizer", optimizer, *choices, "--out", plan)
                self.done("run", plan, "--steps", "1", "--checkpoint-dir", kept, "--checkpoint-every", "1")
                written = sum(file.stat().st_size for file in kept.glob("step-*/rank-*.bin"))
                answer = self.json("goodput", plan, "--steps", "100", "--mtbf-device-hours", "1000", "--checkpoint-s", "1")
                self.assertEqual(answer["checkpoint_bytes"], written)

    def test_what_cannot_be_asked(self):
        plan = ["goodput", self.plan]
        for hours in ("0", "-5", "nan", "inf", "many"):
            self.refused(*plan, "--steps", "10", "--mtbf-device-hours", hours, says="--mtbf-device-hours")
        self.refused(*plan, "--steps", "10", says="--mtbf-device-hours")
        hours = ["--mtbf-device-hours", "100"]
        self.refused("goodput", "nowhere", "--steps", "10", *hours, says="nowhere")
        for steps in ("0", "-1", "1.5", "1e14", "nan", "ten"):
            self.refused(*plan, "--steps", steps, *hours, says="steps")
        self.refused(*plan, *hours, says=["--tokens", "--samples", "--steps"])
        self.refused(*plan, *hours, "--steps", "1", "--tokens", "1", says="one of")
        self.refused(*plan, *hours, "--steps", "10", "--spares", "2", says="--repair-hours")
        self.refused(*plan, *hours, "--steps", "10", "--elastic", says="--repair-hours")
        self.refused(*plan, *hours, "--steps", "10", "--checkpoint-every", "0", says="--checkpoint-every")
        self.refused(*plan, *hours, "--steps", "10", "--snapshot-s", "1", says="--checkpoint-async")
        self.refused(*plan, *hours, "--steps", "10", "--seed", "-1", says="--seed")

    def test_what_has_no_end_or_no_smaller_plan_is_answered_with_no(self):
        self.refused("goodput", self.plan, "--steps", "1e6", "--mtbf-device-hours", "0.1", "--restart-s", "1000", code=3,
                     says="does not end")
        self.refused("goodput", self.plan, "--steps", "1e12", "--mtbf-device-hours", "1", code=3, says="fewer runs")
        self.done("plan", "gpt2", "dgx-a100", "--gpus", "8", "--global-batch", "8", "--seq-len", "128", "--tp", "4", "--pp",
                  "2", "--out", self.folder / "one")
        self.refused("goodput", "one", "--steps", "10", "--mtbf-device-hours", "100", "--repair-hours", "1", "--elastic",
                     code=3, says="there is only one")


if __name__ == "__main__":
    unittest.main(verbosity=2)
