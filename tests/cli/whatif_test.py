"""`orrery whatif`: points that are `plan`'s, what they cost, and which of them answers."""
import csv
import json
import unittest

from orrery_case import PLAN_FIELDS, OrreryCase, small_gpt2


class WhatIf(OrreryCase):
    def test_a_point_is_what_plan_says(self):
        result = self.json("whatif", *small_gpt2(), "--vary", "micro-batch=1,2", "--vary", "zero=0,1")
        self.assertEqual([point["vary"] for point in result["points"]],
                         [{"micro-batch": m, "zero": z} for m in (1, 2) for z in (0, 1)])
        for point in result["points"]:
            self.check_plan(point)
            plan = self.json("plan", *small_gpt2(), "--micro-batch", point["vary"]["micro-batch"], "--zero",
                             point["vary"]["zero"])
            for field in (*PLAN_FIELDS, "load"):
                self.assertEqual(point[field], plan["plans"][0][field], field)
            for field in ("workload", "parameters", "cluster", "devices", "nodes", "runtime", "training", "candidates",
                          "proven", "gap"):
                self.assertEqual(point[field], plan[field], field)

    def test_words_are_read_as_plan_reads_them(self):
        result = self.json("whatif", "gpt2", "dgx-a100", "--gpus", "8", "--global-batch", "8", "--seq-len", "128",
                           "--vary", "precision=bf16,fp32", "--vary", "order=tp,cp,ep,dp,pp;tp,cp,ep,pp,dp", "--pp", "2",
                           "--dp", "4", "--budget", "0.01")
        self.assertEqual([point["training"]["precision"] for point in result["points"]], ["bf16"] * 2 + ["fp32"] * 2)
        self.assertEqual([point["order"][3] for point in result["points"]], ["dp", "pp"] * 2)

    def test_bills_add_up(self):
        result = self.json("whatif", *small_gpt2(), "--vary", "network=1,2", "--vary", "price=2,4", "--tokens", "1.5B")
        self.assertEqual(result["tokens"], 1.5e9)
        for point in result["points"]:
            self.assertEqual(point["steps"], -(-1_500_000_000 // (8 * 128)))
            self.assertAlmostEqual(point["time_to_train_s"] / (point["steps"] * point["step_time_s"]), 1)
            self.assertAlmostEqual(point["device_hours"], point["time_to_train_s"] * 4 / 3600)
            self.assertAlmostEqual(point["cost_usd"], point["device_hours"] * point["vary"]["price"])
            self.assertAlmostEqual(point["energy_j"] / (point["steps"] * point["per_step"]["energy_j"]), 1)
            self.assertTrue(point["meets"])
            for name, value in (("days", point["time_to_train_s"] / 86400), ("usd", point["cost_usd"]),
                                ("mwh", point["energy_j"] / 3.6e9)):
                for end in ("low", "high"):
                    self.assertAlmostEqual(point[f"{name}_{end}"] / value,
                                           point[f"step_time_{end}_s"] / point["step_time_s"])
        cost = [point["cost_usd"] for point in result["points"]]
        time = [point["time_to_train_s"] for point in result["points"]]
        self.assertEqual(cost[result["cheapest"]], min(cost))
        self.assertEqual(time[result["fastest"]], min(time))

    def test_says_what_it_rests_on_once_where_all_points_rest_on_the_same(self):
        text = self.done("whatif", *small_gpt2(), "--vary", "zero=0,1")
        self.assertEqual(text.count("rests on:"), 1)
        self.assertRegex(" ".join(text.split()), r"for 1e9 tokens; 90% interval \S+ to \S+ hours, \S+ to \S+ USD")
        text = self.done("whatif", "gpt2", "--vary", "cluster=dgx-a100,mi300x-8", "--gpus", "8", "--global-batch", "8",
                         "--seq-len", "128")
        text = " ".join(text.split())
        self.assertRegex(text, r"cluster=dgx-a100: This rests on: [^.]*device fitted")
        self.assertRegex(text, r"cluster=mi300x-8: This rests on: [^.]*device from its datasheet")

    def test_each_assumed_price_has_its_own_best_and_who_has_none_is_named(self):
        text = self.done("whatif", *small_gpt2(), "--vary", "price=1,2")
        self.assertIn("Fastest and cheapest: price=1", text)
        self.assertIn("Fastest and cheapest: price=2", text)
        text = self.done("whatif", "gpt2", "dgx-h100", "--nodes", "1", "--global-batch", "8", "--vary",
                         "device=h100-sxm-80g,rtx-4090")
        self.assertIn("no price is stated of device=rtx-4090", text)

    def test_a_network_by_name_or_by_a_factor(self):
        result = self.json("whatif", "resnet50", "v100-ib100", "--nodes", "4", "--vary", "network=1,eth10,ib-hdr",
                           "--global-batch", "64")
        own, ethernet, infiniband = (point["step_time_s"] for point in result["points"])
        self.assertGreater(ethernet, own)
        self.assertLessEqual(infiniband, own)
        message = self.bad("--vary", "network=ib-hdx")
        self.assertIn("'ib-hdr'", message)

    def test_samples_and_nothing_asked(self):
        result = self.json("whatif", "resnet50", "v100-ib100", "--vary", "nodes=2,4", "--global-batch", "64", "--samples",
                           "1000")
        self.assertEqual([point["steps"] for point in result["points"]], [16, 16])
        efficiency = [point["samples_per_s"] / point["devices"] for point in result["points"]]
        self.assertEqual(result["points"][0]["scaling_efficiency"], 1)
        self.assertAlmostEqual(result["points"][1]["scaling_efficiency"], efficiency[1] / efficiency[0])
        result = self.json("whatif", *small_gpt2())
        point, = result["points"]
        self.assertEqual(point["vary"], {})
        self.assertNotIn("steps", point)
        self.assertAlmostEqual(point["per_1e9_tokens"]["time_s"], 1e9 / point["tokens_per_s"])
        self.assertEqual((result["cheapest"], result["fastest"], result["front"]), (0, 0, [0]))

    def test_the_batch_does_not_grow_with_the_nodes(self):
        result = self.json("whatif", "gpt2", "v100-ib100", "--vary", "nodes=1,2,4", "--seq-len", "128")
        self.assertEqual([point["training"]["global_batch"] for point in result["points"]], [4, 4, 4])
        self.assertIn("--global-batch", self.done("whatif", "gpt2", "v100-ib100", "--vary", "nodes=1,2", "--seq-len", "128"))

    def test_clusters_and_workloads(self):
        result = self.json("whatif", "gpt2", "--vary", "cluster=v100-ib100,dgx-a100", "--vary", "workload=gpt2,bert-base",
                           "--gpus", "2", "--global-batch", "4", "--seq-len", "128")
        self.assertEqual([(point["cluster"], point["workload"]) for point in result["points"]],
                         [(c, w) for c in ("v100-ib100", "dgx-a100") for w in ("gpt2", "bert-base")])
        self.assertNotIn("scaling_efficiency", result["points"][0])

    def test_what_is_varied_takes_the_place_of_what_is_given(self):
        result = self.json("whatif", "gpt2", "dgx-a100", "--gpus", "2", "--tp", "2", "--global-batch", "4", "--seq-len", "128",
                           "--vary", "tp=1", "--vary", "cluster=v100-ib100")
        point, = result["points"]
        self.assertEqual((point["cluster"], point["tp"]), ("v100-ib100", 1))

    def test_a_point_without_a_plan_says_why(self):
        text = self.done("whatif", "gpt2", "dgx-a100", "--gpus", "8", "--dp", "8", "--seq-len", "128", "--vary",
                         "global-batch=7,8", "--json", "out.json")
        self.assertIn("No plan for global-batch=7: the global batch of 7", text)
        result = self.parse((self.folder / "out.json").read_text())
        seven, eight = result["points"]
        self.assertIn("batch of 7", seven["refusal"])
        self.assertFalse(seven["meets"])
        self.assertEqual(eight["training"]["global_batch"], 8)
        self.assertEqual(result["fastest"], 1)

    def test_a_deadline_that_only_some_meet(self):
        options = ["whatif", "gpt2", "v100-ib100", "--vary", "nodes=1,2,4", "--global-batch", "32", "--tokens", "10B"]
        days = sorted(point["time_to_train_s"] / 86400 for point in self.json(*options)["points"])
        result = self.json(*options, "--deadline-days", (days[0] + days[1]) / 2)
        self.assertEqual([point["meets"] for point in result["points"]], [False, False, True])
        self.assertEqual((result["cheapest"], result["fastest"]), (2, 2))
        self.assertIn("over the limit", self.done(*options, "--deadline-days", (days[0] + days[1]) / 2))

    def test_a_point_without_a_price_is_not_over_the_budget(self):
        text = self.done("whatif", "gpt2", "--vary", "cluster=dgx-a100,mi300x-8", "--global-batch", "32", "--tokens", "1B",
                         "--budget-usd", "1000", "--wide")
        self.assertRegex(text, r"\nmi300x-8 .* no price")
        self.assertNotIn("over the limit", text)

    def test_what_makes_no_difference_is_not_called_fastest(self):
        text = self.done("whatif", "gpt2", "dgx-a100", "--vary", "network=0.5,1,2", "--global-batch", "32", "--tokens", "1B",
                         "--wide")
        self.assertIn("No difference by network: all 3 points take as long and cost as much: ", text)
        self.assertNotIn("Fastest", text)
        self.assertRegex(text, r" (minutes|hours), [\d.]+ device hours")  # not 0.00390 days

    def test_none_that_meets_what_is_asked(self):
        late = self.orrery("whatif", *small_gpt2(), "--vary", "network=1,2", "--tokens", "1T", "--deadline-days", "0.5",
                           "--budget-usd", "10", "--json", "out.json")
        self.assertEqual(late.returncode, 3)
        line, = late.stderr.splitlines()
        self.assertRegex(line, r"none of 2 points .* the nearest, network=\d, takes .* too long, [\d,.]+ times the deadline and costs .* too much, "
                               r"[\d,.]+ times the budget")
        result = json.loads((self.folder / "out.json").read_text())
        self.assertIsNone(result["cheapest"])
        self.assertIsNone(result["fastest"])
        self.assertEqual(len(result["points"]), 2)

    def test_nothing_fits_anywhere(self):
        result = self.orrery("whatif", "gpt3-175b", "dgx-a100", "--vary", "gpus=1,2", "--seq-len", "128", "--global-batch", "8",
                             "--micro-batch", "1")
        self.assertEqual(result.returncode, 3)
        self.assertIn("none of 2 points has a plan; gpus=1: none of", result.stderr)
        self.assertIn("more than their", result.stderr)
        self.assertEqual([line.split(":")[0] for line in result.stdout.splitlines() if not line.startswith(" ")],
                         ["No plan for gpus=1", "No plan for gpus=2"])
        alone = self.refused("whatif", "gpt3-175b", "dgx-a100", "--gpus", "1", "--seq-len", "128", "--micro-batch", "1", code=3)
        self.assertEqual(alone, self.refused("plan", "gpt3-175b", "dgx-a100", "--gpus", "1", "--seq-len", "128", "--micro-batch",
                                             "1", code=3))

    def test_csv_opens(self):
        self.done("whatif", *small_gpt2(), "--vary", "network=1,2", "--vary", "device-memory=0.001,1", "--tokens", "1B", "--out",
                  "points.csv")
        with open(self.folder / "points.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(row["network"], row["device-memory"]) for row in rows],
                         [("1", "0.001"), ("1", "1"), ("2", "0.001"), ("2", "1")])
        for row in rows:
            self.assertEqual(row["refusal"] == "", row["device-memory"] == "1")
            self.assertEqual(row["meets"], "1" if row["refusal"] == "" else "0")
            self.assertNotIn(None, row)
            if row["refusal"] == "":
                self.assertGreater(float(row["cost_usd"]), 0)
                self.assertTrue(row["plan"].startswith("TP 2 x "))
        self.assertEqual(sum(row["fastest"] == "1" for row in rows), 1)
        self.assertEqual(list(self.folder.glob("*.csv")), [self.folder / "points.csv"])

    def test_is_the_same_every_time_whatever_the_jobs(self):
        runs = [self.json("whatif", *small_gpt2(), "--vary", "network=1,2,4", "--jobs", jobs) for jobs in (1, 3)]
        self.assertEqual(self.without_clock(runs[0]), self.without_clock(runs[1]))

    def test_without_a_price_there_is_no_cost(self):
        result = self.orrery("whatif", "gpt2", "pcie-4090", "--gpus", "2", "--seq-len", "128", "--json", "out.json")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("No cost: no price is stated of pcie-4090"), 1)
        point, = json.loads((self.folder / "out.json").read_text())["points"]
        self.assertNotIn("cost_usd", point["per_1e9_tokens"])
        self.assertIn("energy_j", point["per_1e9_tokens"])
        self.refused("whatif", "gpt2", "pcie-4090", "--gpus", "2", "--tokens", "1B", "--budget-usd", "5", says="price")
        self.json("whatif", "gpt2", "pcie-4090", "--gpus", "2", "--tokens", "1B", "--budget-usd", "1e6", "--vary", "price=0.4")

    # Bad input
    def bad(self, *arguments, **expected):
        return self.refused("whatif", *small_gpt2(), *arguments, "--out", "out.csv", "--json", "out.json", **expected)

    def test_keys_and_values_that_are_none(self):
        for text, says in (("node=1,2", "'nodes'"), ("help=1", "help"), ("nodes", "KEY=V1"), ("=1", "names no option"),
                           ("zero=1,,2", "empty"), ("zero=1,1", "1 twice"), ("zero=1,4", "zero=4"), ("zero=x", "zero=x"),
                           ("precision=bf16,sideways", "sideways"), ("network=0", "network=0"), ("network=nan", "nan"),
                           ("network=2x", "2x"), ("price=-1", "price=-1"), ("cluster=dgx-a100,dgx-z100", "dgx-z100"),
                           ("workload=gpt22", "gpt22"), ("nodes=2", "--gpus"), ("tp=3,5", "tp=3"), ("sync=maybe", "maybe"),
                           ("json=x", "json"), ("stage-layers=a;b", "stage-layers")):
            with self.subTest(text):
                self.bad("--vary", text, says=says)

    def test_a_key_twice(self):
        self.bad("--vary", "zero=0,1", "--vary", "zero=2", says="zero is given twice")

    def test_too_many_points(self):
        self.bad("--vary", "global-batch=" + ",".join(map(str, range(1, 102))), "--vary", "network=1,2,3,4,5,6,7,8,9,10",
                 says="1000")

    def test_goals_that_are_none(self):
        for option, value in (("--tokens", "x"), ("--tokens", "-1"), ("--tokens", "0"), ("--tokens", "1e30"),
                              ("--tokens", "nan"), ("--samples", "3X"), ("--samples", "1TB"), ("--deadline-days", "0"),
                              ("--budget-usd", "inf")):
            with self.subTest((option, value)):
                self.bad(option, value, says=option)
        self.bad("--tokens", "1B", "--samples", "1B", says="--samples")
        self.bad("--deadline-days", "3", says="--tokens")
        self.refused("whatif", "resnet50", "v100-ib100", "--nodes", "2", "--tokens", "1B", says="--samples")

    def test_a_cluster_that_is_neither_given_nor_varied(self):
        self.refused("whatif", "gpt2", says="CLUSTER")
        self.refused("whatif")

    def test_a_place_that_cannot_be_written(self):
        for option in ("--out", "--json"):
            for place in ("/nonexistent/points", "/", self.folder):
                self.refused("whatif", *small_gpt2(), option, place, says=f"{place}: cannot be written")
        self.done("whatif", *small_gpt2(), "--out", "/dev/null", "--json", "/dev/null")


if __name__ == "__main__":
    unittest.main()
