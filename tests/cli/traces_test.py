#!/usr/bin/env python3
"""A plan beside traces of it, and traces beside each other: `orrery validate PLAN --against TRACE`, `orrery trace-diff`."""
import gzip
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase

PLAN = ["plan", "llama3-8b", "dgx-h100", "--gpus", 8, "--tp", 2, "--pp", 1, "--dp", 4, "--micro-batch", 1,
        "--global-batch", 64, "--seq-len", 4096, "--recompute", "none", "--runtime", "megatron-core", "--sequence-parallel", "on"]
GROUP = list(range(8))


def kernel(name, stream, begin_s, length_s, **args):
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": 1e6 * begin_s, "dur": 1e6 * length_s,
            "args": {"stream": stream, **args}}


class Traces(OrreryCase):
    def profile(self, name, rank=0, world=8, products=1.0, reduced=0.3, steps=3, device="NVIDIA H100 80GB HBM3", stream=7):
        """Steps of 2 s: products, attention, then an all-reduce half of which runs beside an optimizer's kernel."""
        events = []
        for n in range(steps + 1):
            at = 2.0 * n
            events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1, "ts": 1e6 * at,
                           "dur": 1.9e6 if n < steps else 0})
            if n == steps:
                break
            events += [kernel("nvjet_tst_128x256_64x4", stream, at, products), kernel("flash_fwd_kernel", stream, at + products, 0.2),
                       kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, at + products + 0.2, reduced, **{
                           "Collective name": "allreduce", "In msg nelems": 1 << 28, "Out msg nelems": 1 << 28, "Group size": 8,
                           "dtype": "BFloat16", "Process Group Ranks": str(GROUP)}),
                       kernel("multi_tensor_apply_kernel", stream, at + products + 0.2 + reduced - 0.05, 0.1)]
        trace = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": device}],
                 "distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events}
        with gzip.open(self.folder / name, "wt") as file:
            json.dump(trace, file)
        return name

    def check_sums(self, found):
        """Kinds and idle time are the step and what ran at once, on both sides."""
        for side, step in (("predicted_s", found["predicted_step_time_s"]), ("measured_s", found["rows"][0]["measured_s"])):
            rows = {row["kind"]: row[side] for row in found["by_kind"]}
            self.assertAlmostEqual(sum(rows.values()) - 2 * rows["at once"], step, delta=1e-4 * step)

    def test_a_profile_says_which_kinds_are_off(self):
        self.done(*PLAN, "--out", "plan.textproto")
        found = self.json("validate", "plan.textproto", "--against", self.profile("rank0.json.gz"))
        self.assertAlmostEqual(found["measured_step_time_s"], 2)
        kinds = {row["kind"]: row for row in found["by_kind"]}
        for kind, seconds in (("products", 1), ("attention", 0.2), ("optimizer", 0.1), ("all_reduce over 8", 0.3), ("idle", 0.45),
                              ("at once", 0.05)):
            self.assertAlmostEqual(kinds[kind]["measured_s"], seconds, delta=1e-5)
        for kind in ("products", "attention", "norms", "optimizer", "reduce_scatter over 2", "all_gather over 2"):
            self.assertGreater(kinds[kind]["predicted_s"], 0, kind)
        self.assertGreater(kinds["products"]["predicted_s"], kinds["attention"]["predicted_s"])
        self.check_sums(found)
        differences = [abs(row["predicted_s"] - row["measured_s"]) for row in found["by_kind"]]
        self.assertEqual(differences, sorted(differences, reverse=True))
        for row in found["by_kind"][:3]:
            self.assertIn(f"{row['kind']} by ", found["explanation"])
        text = self.done("validate", "plan.textproto", "--against", "rank0.json.gz", "--wide")
        self.assertIn(found["explanation"], text)
        self.assertIn("Only one rank was traced", text)
        result = self.orrery("validate", "plan.textproto", "--against", "rank0.json.gz", "--tolerance", 0.01)
        self.assertEqual(result.returncode, 3)
        self.assertIn("outside the tolerance", result.stderr)

    def test_who_waits_for_a_collective_is_idle(self):
        self.done(*PLAN, "--out", "plan.textproto")
        # Rank 1 computes longer; rank 0 waits in the all-reduce for it.
        ranks = [self.profile("rank0.json.gz", 0, reduced=0.5), self.profile("rank1.json.gz", 1, products=1.2, reduced=0.3)]
        found = self.json("validate", "plan.textproto", "--against", *ranks)
        self.assertEqual(found["traced_ranks"], 2)
        kinds = {row["kind"]: row for row in found["by_kind"]}
        self.assertAlmostEqual(kinds["all_reduce over 8"]["measured_s"], 0.3, delta=1e-5)
        self.assertAlmostEqual(kinds["products"]["measured_s"], 1.1, delta=1e-5)
        self.assertAlmostEqual(found["waited_s"], 0.1, delta=1e-5)
        self.check_sums(found)

    def test_what_cannot_be_of_the_plan_is_no_validation(self):
        self.done(*PLAN, "--out", "plan.textproto")
        self.refused("validate", "plan.textproto", "--against", self.profile("small.json.gz", world=4),
                     says=["no step of this plan", "4 ranks instead of 8"])
        self.refused("validate", "plan.textproto", "--against", self.profile("a100.json.gz", device="NVIDIA A100-SXM4-80GB"),
                     says="A100")
        (self.folder / "host.json").write_text('{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", '
                                               '"ts": 1, "dur": 1, "tid": 1}]}')
        self.refused("validate", "plan.textproto", "--against", "host.json", says="no device did anything")
        # A table says of which plan a trace is.
        (self.folder / "steps.csv").write_text("model,n_layers,n_gpus,tp,gbs_sequences,mbs_sequences,seq_len_tokens,act_recompute,trace,"
                                               "step_time_s\nllama3-8b,32,8,8,64,1,4096,none,rank0.json.gz,\n")
        self.refused("validate", "plan.textproto", "--against", self.profile("rank0.json.gz"), "steps.csv", says="tp 8 instead of 2")

    def test_our_own_trace_is_the_prediction_again(self):
        self.done(*PLAN, "--out", "plan.textproto")
        self.done("simulate", "plan.textproto", "--fold", "off", "--trace", "own.json")
        found = self.json("validate", "plan.textproto", "--against", "own.json", "--tolerance", 0.001)
        self.assertEqual(found["traced_ranks"], 8)
        kinds = {row["kind"]: row for row in found["by_kind"]}
        for kind in ("forward", "backward", "tensor_comm", "data_comm", "optimizer"):
            self.assertAlmostEqual(kinds[kind]["predicted_s"], kinds[kind]["measured_s"], delta=1e-4)
        self.refused("calibrate", "dgx-h100", "--from", "own.json", says="nothing could be learned from own.json")

    def test_two_plans_traces_beside_each_other(self):
        for name, tp in (("a", 2), ("b", 4)):
            plan = list(PLAN)
            plan[plan.index("--tp") + 1], plan[plan.index("--dp") + 1] = tp, 8 // tp
            plan[plan.index("--global-batch") + 1] = 8
            self.done(*plan, "--out", f"{name}.textproto")
            self.done("simulate", f"{name}.textproto", "--fold", "off", "--trace", f"{name}.json")
        same = self.json("trace-diff", "a.json", "a.json", "--tolerance", 0)
        self.assertEqual(same["relative_difference"], 0)
        self.assertEqual({row["difference_s"] for row in same["rows"]}, {0})
        found = self.json("trace-diff", "a.json", "b.json")
        self.assertEqual(found["ranks"], list(range(8)))
        rows = {(row["stream"], row["kind"]): row for row in found["rows"]}
        self.assertGreater(rows["tensor", "tensor_comm"]["difference_s"], 0)
        self.assertAlmostEqual(found["a_s"], self.json("simulate", "a.textproto")["step_time_s"], delta=1e-4)
        # As `validate` has it: over all streams, a as predicted.
        for kind in found["by_kind"]:
            if kind["kind"] != "idle":
                a_s = sum(row["a_s"] for row in found["rows"] if row["kind"] == kind["kind"])
                self.assertAlmostEqual(kind["predicted_s"], a_s)
        self.assertLess({kind["kind"]: kind["relative_error"] for kind in found["by_kind"]}["tensor_comm"], 0)
        text = self.done("trace-diff", "a.json", "b.json", "--wide")
        self.assertIn(found["explanation"], text)
        self.assertEqual(self.orrery("trace-diff", "a.json", "b.json", "--tolerance", 0.001).returncode, 3)
        self.profile("rank0.json.gz")
        mixed = self.json("trace-diff", "rank0.json.gz", "a.json")
        self.assertEqual(mixed["aligned"], "by what all traces tell")
        self.assertEqual(mixed["ranks"], [0])
        self.assertLessEqual({row["kind"] for row in mixed["rows"]}, {"computation", "communication", "optimizer", "copies"})

    def test_a_table_whose_names_are_long_stays_one_table(self):
        """Many kernels have large counts, and folders long names; 80 columns hold both."""
        for name, seconds in (("a.json", 1.0), ("b.json", 1.3)):
            with gzip.open(self.folder / self.profile(name + ".gz", products=seconds), "rt") as file:
                trace = json.load(file)
            trace["traceEvents"] += [kernel("gemm", 1_000_000 + n % 3, 0.4 + 1e-4 * n, 1e-5) for n in range(3600)]
            (self.folder / name).write_text(json.dumps(trace))
        deep = self.folder / "a folder whose name is long, and says what is in it" / "and another, for traces of one rank" / "a.json"
        deep.parent.mkdir(parents=True)
        deep.write_text((self.folder / "a.json").read_text())
        self.done(*PLAN, "--out", "plan.textproto")
        for words, last in ((["trace-diff", "a.json", "b.json"], "change"), (["validate", "plan.textproto", "--against", deep], "error")):
            narrow, wide = self.done(*words), self.done(*words, "--wide")
            for line in narrow.splitlines():
                self.assertLessEqual(len(line), 80, narrow)
            self.assertEqual(narrow.count("\n\n"), wide.count("\n\n"), narrow)
            self.assertRegex(narrow, rf"(?m)^(stream|part of a step).* {last}(  times)?$")
        self.assertRegex(narrow, r"(?m)^/.+….+/a\.json  +[\d.]+ s  +[\d.]+ s  +\+")
        self.assertEqual(self.json("validate", "plan.textproto", "--against", deep)["rows"][0]["file"], str(deep))

    def test_other_profilers_files_stand_beside_each_other(self):
        self.done(*PLAN, "--out", "plan.textproto")
        self.done("export", "plan.textproto", "--to", "chakra", "--out", "et")
        names = sorted(path for path in (self.folder / "et").iterdir() if path.suffix == ".et")
        self.assertEqual(len(names), 8)
        self.done("simulate", "plan.textproto", "--trace", "own.json")
        found = self.json("trace-diff", names[0], "own.json")
        rows = {row["kind"]: row for row in found["rows"]}
        # Ours has the computation's times, but for what traffic beside it costs, and no collective's.
        slowdown = rows["computation"]["b_s"] / rows["computation"]["a_s"]
        self.assertTrue(0.995 < slowdown < 1.04, slowdown)
        self.assertEqual(rows["communication"]["a_s"], 0)
        nsys = f"{os.environ['ORRERY_SOURCE_DIR']}/tests/data/measurements/nsys.sqlite"
        same = self.json("trace-diff", nsys, nsys, "--tolerance", 0)
        self.assertEqual((same["ranks"], len(same["steps"])), ([0, 1], 3))
        found = self.json("validate", "plan.textproto", "--against", nsys)
        self.assertEqual(found["traced_ranks"], 2)
        self.assertIn("all_reduce", {row["kind"] for row in found["by_kind"]})

    def test_profiles_are_aligned_by_step_stream_and_kind(self):
        for folder in ("a", "b"):
            (self.folder / folder).mkdir()
        for rank in range(2):
            self.profile(f"a/rank{rank}.json.gz", rank)
            self.profile(f"b/rank{rank}.json.gz", rank, products=1.3, steps=2)
        found = self.json("trace-diff", "a", "b")
        self.assertEqual((found["aligned"], found["ranks"], len(found["steps"])), ("streams by name", [0, 1], 2))
        self.assertEqual((found["rows"][0]["stream"], found["rows"][0]["kind"]), ("stream 7", "products"))
        self.assertAlmostEqual(found["rows"][0]["difference_s"], 0.3, delta=1e-5)
        self.assertAlmostEqual(found["b_idle_s"] - found["a_idle_s"], -0.3, delta=1e-5)
        self.assertIn("1 steps beyond the other's 2", " ".join(found["left_out"]))
        moved = self.profile("moved.json.gz", stream=9)
        found = self.json("trace-diff", "a/rank0.json.gz", moved)
        self.assertEqual(found["aligned"], "streams by what runs on them")
        self.assertEqual(found["rows"][0]["difference_s"], 0)
        (self.folder / "text").write_text("hello\n")
        self.refused("trace-diff", "a", "text", says=["text", "Kineto"])
        self.refused("trace-diff", "a", "nowhere", says="nowhere")


if __name__ == "__main__":
    unittest.main()
