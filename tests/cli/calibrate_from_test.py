#!/usr/bin/env python3
"""`orrery calibrate CLUSTER --from FILE…`: from a table of measured steps to a plan that knows them."""
import gzip
import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase

PLAN = ["plan", "llama3-8b", "dgx-h100", "--gpus", 8, "--tp", 2, "--pp", 1, "--dp", 4, "--micro-batch", 1,
        "--global-batch", 64, "--seq-len", 4096, "--recompute", "none", "--runtime", "megatron-core"]


class CalibrateFrom(OrreryCase):
    def table(self, name, slower, header="model,n_layers,gpu,n_gpus,tp,pp,gbs_sequences,mbs_sequences,seq_len_tokens,precision,"
                                         "act_recompute,step_time_s"):
        """Steps of a site that is so many times slower than predicted."""
        rows = [header]
        for tp, batch in ((2, 64), (4, 64), (2, 128), (4, 128), (8, 64), (8, 128)):
            found = self.json("plan", "llama3-8b", "dgx-h100", "--gpus", 8, "--tp", tp, "--pp", 1, "--micro-batch", 1,
                              "--global-batch", batch, "--seq-len", 4096, "--recompute", "none", "--zero", 1,
                              "--sequence-parallel", "on", "--runtime", "megatron-core")["plans"][0]["estimate_s"]
            rows.append(f"llama3-8b,32,H100,8,{tp},1,{batch},1,4096,bf16,none,{slower * found:.6g}")
        (self.folder / name).write_text("\n".join(rows) + "\n")
        return name

    def test_steps_make_later_plans_on_that_cluster_better_and_they_say_so(self):
        before = self.json(*PLAN)
        self.assertNotIn("calibrated_by", before)
        found = self.json("calibrate", "dgx-h100", "--from", self.table("steps.csv", 1.25), "--runtime", "megatron-core")
        self.assertEqual(found["files"][0]["steps"], 6)
        self.assertEqual(found["held_out"]["rows"], 6)
        self.assertGreater(found["held_out"]["mape_before"], 0.15)
        self.assertLess(found["held_out"]["mape_after"], 0.06)
        factors = {factor["name"]: factor for factor in found["factors"]}
        self.assertLessEqual({"matmul", "clock", "site", "host"}, set(factors))
        for factor in factors.values():
            self.assertLess(factor["low"], factor["after"])
            self.assertLess(factor["after"], factor["high"])
        self.assertEqual(factors["between"]["source"], "not measured")
        self.assertEqual(factors["between"]["after"], 1)
        after = self.json(*PLAN)
        self.assertIn("6 steps", after["calibrated_by"])
        was, now = before["plans"][0], after["plans"][0]
        self.assertAlmostEqual(now["step_time_s"] / was["step_time_s"], 1.25, delta=0.06)
        self.assertEqual(now["rests_on"]["runtime"], "calibrated")
        self.assertLess(now["step_time_high_s"] / now["step_time_low_s"],
                        1 + 0.7 * (was["step_time_high_s"] / was["step_time_low_s"] - 1))
        self.assertIn("Calibrated by 6 steps", self.done(*PLAN))
        self.assertIn("steps were measured with runtime megatron-core", self.done(*PLAN[:-1], "torchtitan", "--wide"))
        # Another runtime keeps its own kernels; another cluster knows nothing of this one.
        self.assertEqual(self.json(*PLAN[:-1], "torchtitan")["plans"][0]["rests_on"]["runtime"], "fitted")
        self.assertNotIn("calibrated_by", self.json("plan", "llama3-8b", "dgx-a100", *PLAN[3:]))

    def test_a_profile_is_a_cluster_and_published_tables_never_see_the_stored_one(self):
        table = self.table("steps.csv", 1.25)
        published = self.json("validate", "--published", table, "--cluster", "dgx-h100")["all"]
        self.assertEqual(published["rows"], 6)
        self.done("calibrate", "dgx-h100", "--from", table, "--runtime", "megatron-core")
        self.assertEqual(self.json("validate", "--published", table, "--cluster", "dgx-h100")["all"], published)
        self.done("calibrate", "dgx-h100", "--from", table, "--runtime", "megatron-core", "--out", "mine.textproto")
        mine = self.json("plan", "llama3-8b", "mine.textproto", *PLAN[3:])
        self.assertEqual(mine["plans"][0]["step_time_s"], self.json(*PLAN)["plans"][0]["step_time_s"])
        # A plan's file says it all.
        self.done(*PLAN, "--out", "plan.textproto")
        self.assertAlmostEqual(self.json("simulate", "plan.textproto")["step_time_s"],
                               mine["plans"][0]["step_time_s"], delta=1e-9)
        self.refused("calibrate", "mine.textproto", "--from", table, says="calibrated already")

    def trace(self, name, rank, device, slowest, us=6e3):
        """A rank's trace, packed: three steps of 2 s, an all-reduce on all eight devices, of which rank `slowest` comes last."""
        events = [{"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1, "ts": 2e6 * n, "dur": 1.9e6}
                  for n in range(3)]
        for n in range(6):
            events.append({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 20,
                           "ts": 1e6 * n, "dur": (us if rank == slowest else 9e4) + n,
                           "args": {"Collective name": "allreduce", "In msg nelems": 1 << 28, "Out msg nelems": 1 << 28,
                                    "Group size": 8, "dtype": "Float", "Process Group Ranks": str(list(range(8)))}})
        trace = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": device}],
                 "distributedInfo": {"rank": rank, "world_size": 8}, "traceEvents": events}
        with gzip.open(self.folder / name, "wt") as file:
            json.dump(trace, file)
        return name

    def test_ranks_traces_say_what_links_and_steps_take(self):
        traces = [self.trace(f"rank{rank}.json.gz", rank, "NVIDIA H100 80GB HBM3", 3) for rank in range(8)]
        (self.folder / "steps.csv").write_text("model,n_gpus,tp,gbs_sequences,seq_len_tokens,act_recompute,trace,step_time_s\n"
                                               "llama3-8b,8,2,64,4096,none,rank0.json.gz,\n")
        found = self.json("calibrate", "dgx-h100", "--from", "steps.csv", *traces, "--runtime", "megatron-core")
        self.assertEqual(sum(file["collectives"] for file in found["files"]), 1)
        self.assertEqual(sum(file["steps"] for file in found["files"]), 1)
        self.assertEqual([trace["rank"] for trace in found["traces"]], list(range(8)))
        self.assertEqual(found["traces"][0]["steps_s"], [2, 2])
        factors = {factor["name"]: factor for factor in found["factors"]}
        self.assertGreater(factors["intra"]["after"], 1.1)  # 1 GiB in 6 ms is slow on these links
        self.assertIn("1 step and 1 collective measured", self.json(*PLAN)["calibrated_by"])
        a100 = self.trace("a100.json.gz", 0, "NVIDIA A100-SXM4-80GB", 0)
        self.refused("calibrate", "dgx-h100", "--from", traces[0], a100, says=["a100.json.gz", "A100-SXM4-80GB"])
        (self.folder / "half.json.gz").write_bytes((self.folder / a100).read_bytes()[:-20])
        self.refused("calibrate", "dgx-h100", "--from", "half.json.gz", says="half.json.gz")
        # One rank alone may have waited.
        self.refused("calibrate", "dgx-h100", "--from", traces[3], says="traces of all ranks")
        # 1 GiB in 60 us is more than its links carry.
        fast = [self.trace(f"fast{rank}.json.gz", rank, "NVIDIA H100 80GB HBM3", 3, us=60) for rank in range(8)]
        self.refused("calibrate", "dgx-h100", "--from", *fast, code=3, says="GB/s")

    def test_contradictions_are_refused_and_nothing_is_written(self):
        table = self.table("steps.csv", 1.25)
        other = self.table("other.csv", 2.5)
        self.refused("calibrate", "dgx-h100", "--from", table, other, says=["other.csv:2", "steps.csv:2"])
        (self.folder / "a100.csv").write_text("model,gpu,n_gpus,gbs_sequences,step_time_s\nllama3-8b,A100,8,64,9\n")
        self.refused("calibrate", "dgx-h100", "--from", "a100.csv", says=["a100.csv:2", "A100"])
        (self.folder / "pcie.csv").write_text("model,gpu,n_gpus,gbs_sequences,step_time_s\nllama3-8b,H100 PCIe,8,64,9\n")
        self.refused("calibrate", "dgx-h100", "--from", "pcie.csv", says=["pcie.csv:2", "H100 PCIe", "h100-sxm-80g"])
        self.refused("calibrate", "dgx-h100", "--from", self.table("ms.csv", 1250), code=3, says="ms.csv:2")
        self.refused("calibrate", "dgx-h100", "--from", self.table("us.csv", 1e-3), code=3, says="us.csv:2")
        ranks = "".join(f"#  Rank  {rank} Group  0 Pid 1 on a device  {rank} [0x1] NVIDIA H100\n" for rank in range(8))
        (self.folder / "slow.log").write_text("# Collective test starting: all_reduce_perf\n# nGpus 8 minBytes 8\n" + ranks +
                                              "67108864 16777216 float sum -1 117440 0.57 1.00 0 117440 0.57 1.00 0\n")
        self.refused("calibrate", "dgx-h100", "--from", "slow.log", code=3, says=["slow.log:11", "times what is predicted"])
        (self.folder / "text").write_text("hello\n")
        self.refused("calibrate", "dgx-h100", "--from", "text", says="nccl-tests")
        self.refused("calibrate", "dgx-h100", "--from", "nowhere.csv", says="nowhere.csv")
        self.refused("calibrate", "--from", table, says="CLUSTER")
        self.assertFalse((self.folder / "data").exists())

    def test_tokens_of_one_device_are_not_learned_from(self):
        table = self.table("steps.csv", 1.1)
        rows = [line.split(",") for line in (self.folder / table).read_text().splitlines()]
        rows[0][-1] = "tokens_per_s"
        for row in rows[1:]:
            row[-1] = f"{int(row[6]) * 4096 / float(row[-1]) / 8:.6g}"
        (self.folder / "device.csv").write_text("\n".join(map(",".join, rows)) + "\n")
        self.refused("calibrate", "dgx-h100", "--from", "device.csv", "--runtime", "megatron-core", code=3,
                     says=["device.csv:2:", "8.8 times what is predicted: is 'tokens_per_s' one device's of 8"])
        self.assertFalse((self.folder / "data").exists())
        self.assertIn("Runtime: megatron-core (by --runtime).",
                      self.done("calibrate", "dgx-h100", "--from", table, "--runtime", "megatron-core"))

    def test_what_cannot_have_run_is_doubted_beside_the_answer(self):
        (self.folder / "steps.csv").write_text("model,n_gpus,tp,gbs_sequences,mbs_sequences,seq_len_tokens,act_recompute,step_time_s\n"
                                               "llama3-8b,8,2,128,1,8192,none,11.2\n")
        result = self.orrery("calibrate", "dgx-h100", "--from", "steps.csv", "--runtime", "megatron-lm-2022", "--json", "-")
        self.assertEqual(result.returncode, 0)
        self.assertIn("steps.csv:2: was measured, but under the runtime megatron-lm-2022", json.loads(result.stdout)["doubts"][0])
        self.assertIn("orrery: warning: steps.csv:2:", result.stderr)
        self.assertIn("or --runtime)", result.stderr)
        self.assertEqual(self.json("calibrate", "dgx-h100", "--from", "steps.csv", "--runtime", "megatron-core")["doubts"], [])

    def test_a_plan_is_validated_against_steps_that_were_measured(self):
        table = self.table("steps.csv", 1.1)
        self.done(*PLAN, "--zero", 1, "--sequence-parallel", "on", "--out", "plan.textproto")
        found = self.json("validate", "plan.textproto", "--against", table)
        self.assertEqual([row["line"] for row in found["rows"]], [2])
        self.assertAlmostEqual(found["relative_error"], 1 / 1.1 - 1, delta=0.03)
        self.assertAlmostEqual(found["relative_error"],
                               found["predicted_step_time_s"] / found["measured_step_time_s"] - 1, delta=1e-9)
        self.assertEqual(found["by_kind"], [])
        self.assertIn("tp 4 instead of 2", " ".join(one["why"] for one in found["ignored"]))
        self.assertIn("Not compared: steps.csv:3: tp 4 instead of 2", self.done("validate", "plan.textproto", "--against", table))
        self.done("validate", "plan.textproto", "--against", table, "--tolerance", 0.2)
        result = self.orrery("validate", "plan.textproto", "--against", table, "--tolerance", 0.02)
        self.assertEqual(result.returncode, 3)
        self.assertIn("outside the tolerance", result.stderr)
        (self.folder / "other.csv").write_text("model,n_layers,gpu,n_gpus,tp,gbs_sequences,mbs_sequences,seq_len_tokens,"
                                               "step_time_s\nllama3-8b,32,H100,8,8,64,1,4096,6\n")
        self.refused("validate", "plan.textproto", "--against", "other.csv", says=["no step of this plan", "tp 8 instead of 2"])
        self.refused("validate", "--against", table, says="PLAN")

    def test_a_validation_that_compares_nothing_is_no_success(self):
        (self.folder / "empty.csv").write_text("model,n_layers,gpu,n_gpus,gbs_sequences,step_time_s\nllama3-8b,32,,8,64,9\n")
        result = self.orrery("validate", "--published", "empty.csv")
        self.assertEqual(result.returncode, 2)
        self.assertIn("nothing could be compared", result.stderr)
        (self.folder / "foreign.csv").write_text("name,time\na,1\n")
        self.refused("validate", "--published", "foreign.csv", says=["foreign.csv:1", "step_time_s", "n_layers"])
        self.refused("validate", "--published-collectives", "foreign.csv", says=["size_bytes", "oop_time_us"])

    def test_runs_in_one_log_are_steps_each_and_a_first_line_alone_is_none(self):
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/measurements/megatron.log")) as file:
            log = file.read()
        first = log.index("elapsed time")
        (self.folder / "short.log").write_text(log[:log.index("\n", first) + 1])
        self.refused("calibrate", "dgx-h100", "--from", "short.log", says=["short.log:", "warms up"])
        (self.folder / "two.log").write_text(log + log.replace("tensor_model_parallel_size ...", "tensor_model_parallel_size .. 2 .")
                                             .replace("pipeline_model_parallel_size ...", "pipeline_model_parallel_size .. 4 ."))
        found = self.json("calibrate", "dgx-h100", "--from", "two.log")
        self.assertEqual((found["files"][0]["steps"], found["ignored"]), (2, []))
        self.done("plan", "llama3-8b", "dgx-h100", "--gpus", 8, "--top", 1, "--out", "plan.textproto", "--global-batch", 64)
        self.refused("validate", "plan.textproto", "--against", "two.log", says="no step of this plan")

    def megatron_log(self, name, step_s, **arguments):
        """As Megatron-LM core 0.20 prints it, of two nodes and Mixtral's dimensions unless told otherwise."""
        said = {"add_bias_linear": False, "attention_backend": "AttnBackend.flash", "bf16": True, "clip_grad": 1.0,
                "context_parallel_size": 1, "cp_comm_type": ["p2p"], "data_parallel_sharding_strategy": "optim_grads_params",
                "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1, "ffn_hidden_size": 14336, "fp16": False,
                "global_batch_size": 64, "grad_reduce_in_bf16": False, "group_query_attention": True, "hidden_size": 4096,
                "kv_channels": 128, "make_vocab_size_divisible_by": 128, "micro_batch_size": 1, "moe_ffn_hidden_size": 14336,
                "moe_router_topk": 2, "moe_token_dispatcher_type": "alltoall", "normalization": "RMSNorm",
                "num_attention_heads": 32, "num_experts": 8, "num_layers": 32, "num_query_groups": 8, "optimizer": "adam",
                "overlap_grad_reduce": True, "overlap_param_gather": True, "padded_vocab_size": None,
                "pipeline_model_parallel_size": 1, "position_embedding_type": "rope", "recompute_granularity": None,
                "seq_length": 4096, "sequence_parallel": True, "swiglu": True, "tensor_model_parallel_size": 2,
                "tp_comm_overlap": False, "transformer_impl": "transformer_engine",
                "untie_embeddings_and_output_weights": True, "use_distributed_optimizer": True, "use_megatron_fsdp": False,
                "virtual_pipeline_model_parallel_size": None, "vocab_size": 32000, "world_size": 16}
        lines = ["------------------------ arguments ------------------------"]
        lines += [f"  {key} {'.' * (48 - len(key))} {value}" for key, value in sorted({**said, **arguments}.items())]
        lines += [f" iteration {i:8d}/      50 | consumed samples: {64 * i} | elapsed time per iteration (ms): "
                  f"{1000 * step_s * (5 if i == 1 else 1 + 0.001 * i):.1f} | global batch size: 64 |" for i in range(1, 6)]
        (self.folder / name).write_text("\n".join(lines) + "\n")
        return name

    def test_a_megatron_log_is_the_plan_that_its_arguments_say(self):
        common = ["dgx-h100", "--nodes", 2, "--micro-batch", 1, "--global-batch", 64, "--seq-len", 4096, "--pp", 1, "--cp", 1,
                  "--runtime", "megatron-core", "--top", 1]
        dense = {"num_experts": None, "expert_model_parallel_size": 1, "vocab_size": 128256}
        for model, pins, said in (
                ("mixtral-8x7b", ["--tp", 2, "--sequence-parallel", "on", "--ep", 8, "--etp", 1, "--zero", 1, "--recompute", "full"],
                 {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}),
                ("llama3-8b", ["--tp", 2, "--sequence-parallel", "on", "--zero", 1, "--recompute", "full:10"],
                 {**dense, "recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 10}),
                ("llama3-8b", ["--tp", 2, "--sequence-parallel", "off", "--zero", 1, "--recompute", "selective:mlp"],
                 {**dense, "sequence_parallel": False, "recompute_granularity": "selective", "recompute_modules": ["mlp"]}),
                ("llama3-8b", ["--tp", 1, "--zero", 3, "--recompute", "none"],
                 {**dense, "tensor_model_parallel_size": 1, "use_megatron_fsdp": True})):
            with self.subTest(model=model, pins=pins):
                found = self.json("plan", model, *common, *pins, "--out", "plan.textproto")["plans"][0]
                log = self.megatron_log("run.log", 1.25 * found["estimate_s"], **said)
                against = self.json("validate", "plan.textproto", "--against", log)
                self.assertEqual(len(against["rows"]), 1)
                self.assertAlmostEqual(against["relative_error"], 1 / 1.25 - 1, delta=0.06)
                self.megatron_log("again.log", 1.25 * found["estimate_s"] * 1.01, **said)
                before = self.json("calibrate", "dgx-h100", "--from", log, "again.log", "--out", "mine.textproto")
                self.assertEqual(before["ignored"], [])
                self.assertAlmostEqual(before["held_out"]["mape_before"], 0.2, delta=0.02)
        other = self.megatron_log("other.log", 9, **dense, tensor_model_parallel_size=1)
        self.refused("validate", "plan.textproto", "--against", other, says=["no step of this plan", "ZeRO stage 1 instead of 3"])
        muon = self.megatron_log("muon.log", 9, optimizer="muon")
        self.refused("calibrate", "dgx-h100", "--from", muon, says="optimizer muon, which no plan says")

    def test_the_template_lists_the_columns(self):
        header, row = self.done("measurements", "--template").splitlines()
        self.assertEqual(header.count(","), row.count(","))
        self.assertIn("step_time_s", header)
        (self.folder / "t.csv").write_text(header + "\n" + row + "\n")
        self.refused("calibrate", "dgx-h100", "--from", "t.csv", says="neither a step time nor a throughput")
        self.assertIn("output of nccl-tests or rccl-tests\n    bandwidth and latency of the links\n", self.done("measurements"))
        self.assertEqual(len(self.json("measurements")["kinds"]), len(self.done("measurements", "--wide").splitlines()) - 1)


if __name__ == "__main__":
    unittest.main()
