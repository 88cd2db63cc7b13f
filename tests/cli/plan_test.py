"""`orrery plan`: its fields, what must add up, and that the answer is the same every time."""
import pathlib
import unittest

from orrery_case import OrreryCase, small_gpt2

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


class Plan(OrreryCase):
    def test_gives_the_fields_of_a_plan(self):
        result = self.json("plan", *small_gpt2())
        for field in ("candidates", "feasible", "simulated"):
            self.assertIs(type(result[field]), int)
            self.assertGreater(result[field], 0)
        self.assertIs(type(result["proven"]), bool)
        self.assertGreaterEqual(result["gap"], 0)
        self.assertGreaterEqual(result["search_s"], 0)
        self.assertLessEqual(len(result["plans"]), 10)
        self.assertEqual(result["proven"], result["gap"] == 0)
        regrets = [plan["regret_s"] for plan in result["plans"]]
        self.assertEqual(regrets, sorted(regrets))
        self.assertLessEqual(sum(plan["probability_fastest"] for plan in result["plans"]), 1 + 1e-9)
        self.assertGreaterEqual(result["compared"], len(result["plans"]))
        for plan in result["plans"]:
            self.assertGreaterEqual(plan["fit_probability"], 0.95)
        result = self.json("plan", *small_gpt2(), "--rank", "nominal")
        self.assertNotIn("nominal", result)
        times = [plan["step_time_s"] for plan in result["plans"]]
        self.assertEqual(times, sorted(times))
        for plan in result["plans"]:
            self.check_plan(plan)
            self.assertEqual(plan["tp"], 2)
            self.assertEqual(plan["tp"] * plan["pp"] * plan["dp"] * plan["cp"], 4)
            self.assertEqual(plan["dp"] * plan["micro_batch"] * plan["micro_batches"], 8)
            self.assertLessEqual(plan["memory_bytes"]["total"], plan["memory_bytes"]["capacity"])
            self.assertEqual(sum(plan["stage_layers"]), 12)

    def test_says_by_what_plans_are_ranked_where_it_is_not_the_step(self):
        asked = ["llama3-8b", "dgx-h100", "--nodes", "2", "--global-batch", "32", "--seq-len", "8192"]
        note = "(ranked by expected regret; --rank nominal ranks by the step)\n"
        for more in ([], ["--rank", "nominal"]):
            with self.subTest(more):
                times = [plan["step_time_s"] for plan in self.json("plan", *asked, *more)["plans"]]
                self.assertEqual(note in self.done("plan", *asked, *more), times != sorted(times))
                if more:
                    self.assertEqual(times, sorted(times))

    def test_says_why_in_words_and_numbers(self):
        lines = self.done("plan", *small_gpt2(), "--verbose").splitlines()
        verdict = lines.index(next(l for l in lines if l.startswith(("Proven", "Best found"))))
        why = lines[max(at for at in range(verdict) if lines[at] == "") + 1:verdict]
        self.assertGreater(len(why), 3)
        self.assertLessEqual(max(len(line) for line in why), 80)
        text = " ".join(line.strip() for line in lines)
        self.assertIn("a step:", text)
        self.assertIn("runner-up", text)
        self.assertIn("would save", text)
        self.assertRegex(text, r"(Proven best of [\d,]+ plans|Best found, within [0-9.]+% of the bound)")

    def test_is_the_same_every_time_whatever_the_jobs(self):
        runs = [self.json("plan", *small_gpt2(), "--jobs", jobs) for jobs in (1, 1, 2)]
        self.assertEqual(self.without_clock(runs[0]), self.without_clock(runs[1]))
        self.assertEqual(self.without_clock(runs[0]), self.without_clock(runs[2]))

    def test_a_no_says_what_was_ignored_too(self):
        result = self.orrery("plan", "llama3-8b", "dgx-h100", "--nodes", "1", "--global-batch", "8", "--from-megatron",
                             "--foo 3 --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1")
        self.assertEqual(result.returncode, 3)
        ignored, assumed, why = result.stderr.splitlines()
        self.assertIn("--foo: not known here", ignored)
        self.assertIn("assumed: --runtime megatron-core, which --from-megatron is for", assumed)
        self.assertIn("fits in memory", why)

    def test_experts_that_the_model_does_not_have_are_ignored_aloud(self):
        for experts, said in (("16", True), ("8", False)):
            result = self.orrery("plan", "mixtral-8x7b", "dgx-h100", "--nodes", "2", "--global-batch", "16", "--from-megatron",
                                 f"--num-experts {experts}")
            self.assertEqual("number of experts: 16, but the model has 8" in result.stderr, said, result.stderr)

    def test_with_everything_pinned_evaluates_that_plan(self):
        result = self.json("plan", "gpt2", "dgx-a100", "--gpus", "8", "--global-batch", "32", "--seq-len", "256",
                           "--tp", "2", "--pp", "2", "--dp", "2", "--cp", "1", "--ep", "1", "--micro-batch", "2",
                           "--schedule", "1f1b", "--zero", "1", "--recompute", "full", "--sequence-parallel", "on",
                           "--overlap-grad-reduce", "on", "--stage-layers", "6,6",
                           "--bucket-bytes", "40000000", "--order", "tp,cp,ep,dp,pp")
        self.assertEqual(result["candidates"], 1)
        self.assertTrue(result["proven"])
        plan, = result["plans"]
        self.check_plan(plan)
        self.assertEqual((plan["pp"], plan["micro_batches"], plan["zero"], plan["recompute"]), (2, 8, 1, "full"))
        self.assertTrue(plan["sequence_parallel"])
        self.assertGreater(plan["breakdown_s"]["recompute"], 0)

    def test_chosen_modules_are_run_again_in_every_verb(self):
        pins = ("--tp", "2", "--pp", "1", "--cp", "1", "--micro-batch", "2", "--zero", "1", "--overlap-grad-reduce", "on")
        job = ("gpt2", "dgx-a100", "--gpus", "4", "--global-batch", "16", "--seq-len", "256", *pins)
        modules = ["core_attn", "layernorm", "mlp"]
        plain = self.json("plan", *job, "--recompute", "selective")["plans"][0]
        self.assertEqual((plain["recompute"], plain["recompute_modules"]), ("selective", []))
        text = self.done("plan", *job, "--recompute", "selective:mlp,core_attn,layernorm", "--out", "modules.textproto")
        self.assertIn("selective recomputation of core_attn, layernorm, mlp", " ".join(text.split()))
        chosen = self.json("plan", *job, "--recompute", "selective:mlp+core_attn,layernorm")["plans"][0]
        again = self.json("simulate", "modules.textproto")
        for plan in (chosen, again):
            self.check_plan(plan)
            self.assertEqual((plan["recompute"], plan["recompute_modules"]), ("selective", modules))
            self.assertEqual(plan["step_time_s"], chosen["step_time_s"])
        self.assertLess(chosen["memory_bytes"]["activations"], plain["memory_bytes"]["activations"])
        self.assertGreater(chosen["breakdown_s"]["recompute"], plain["breakdown_s"]["recompute"])
        points = self.json("whatif", *job, "--vary", "recompute=none,selective:core_attn+layernorm+mlp")["points"]
        self.assertEqual(len(points), 2)
        self.assertLess(points[0]["step_time_s"], points[1]["step_time_s"])
        files = self.json("export", "modules.textproto", "--to", "megatron")
        self.assertIn("--recompute-granularity selective --recompute-modules core_attn layernorm mlp",
                      " ".join("".join(file["content"] for file in files["files"]).replace("\\\n", " ").split()))
        self.refused("plan", *job, "--recompute", "selective:mlp,atention", says=("'atention'", "core_attn", "mla_up_proj", "moe"))
        self.refused("plan", *job, "--recompute", "selective:moe_act", says="gpt2 has no experts")

    def test_a_pin_without_what_it_needs_is_refused(self):
        for pin, says in ((("--staleness", "2"), "--staleness 2 with --sync"), (("--servers", "2"), "--servers 2 with --sync"),
                          (("--capacity-factor", "1.5"), "gpt2 has no experts"), (("--ep", "2"), "gpt2 has no experts"),
                          (("--lora-alpha", "8"), "--lora-alpha without --lora-rank"), (("--dora",), "--dora without --lora-rank"),
                          (("--recompute", "full:13"), "gpt2 has 12 layers")):
            self.refused("plan", *small_gpt2(), *pin, says=says)
        self.done("plan", *small_gpt2(), "--search-sync", "--staleness", "2", "--top", "1")

    def test_warns_of_precisions_that_the_device_has_no_units_for(self):
        says = "v100-sxm2-32g has no bf16 units: products are computed in fp32"
        asked = ["dgx-v100-32g", "--gpus", "8", "--global-batch", "8"]
        result = self.orrery("plan", "gpt2", *asked, "--precision", "bf16", "--out", "plan", "--json", "-")
        self.assertIn(says, result.stderr)
        answer = self.parse(result.stdout)
        self.assertEqual(answer["warnings"], [says])
        self.assertLess(answer["plans"][0]["mfu"], 1)
        simulated = self.orrery("simulate", "plan", "--json", "-")
        self.assertIn(says, simulated.stderr)
        self.assertEqual(self.parse(simulated.stdout)["warnings"], [says])
        varied = self.orrery("whatif", "gpt2", *asked, "--vary", "precision=bf16,fp16", "--json", "-")
        self.assertEqual(varied.stderr.count(says), 1)
        points = self.parse(varied.stdout)["points"]
        self.assertEqual([point["warnings"] for point in points], [[says], []])
        self.assertLess(points[1]["step_time_s"], points[0]["step_time_s"])

    def test_tokens_that_are_dropped_are_not_counted(self):
        pinned = ["plan", "mixtral-8x7b", "dgx-h100", "--nodes", "4", "--global-batch", "64", "--seq-len", "4096", "--micro-batch", "1",
                  "--recompute", "full", "--tp", "1", "--pp", "4", "--dp", "8", "--ep", "8", "--zero", "1", "--schedule", "1f1b",
                  "--capacity-factor"]
        few, all_of_them = (self.json(*pinned, factor) for factor in ("0.01", "1"))
        self.assertEqual(few["warnings"], ["a capacity factor of 0.01 drops at least 99% of the tokens that the router sends to experts"])
        self.assertEqual(all_of_them["warnings"], [])
        self.assertLess(few["plans"][0]["model_flops"], all_of_them["plans"][0]["model_flops"] / 2)
        self.assertLess(few["plans"][0]["hfu"], 1)

    def test_tops_at_what_is_asked(self):
        self.assertEqual(len(self.json("plan", *small_gpt2(), "--top", "3")["plans"]), 3)

    def test_uneven_stages_when_asked(self):
        result = self.json("plan", "gpt2", "dgx-a100", "--gpus", "2", "--global-batch", "8", "--seq-len", "128",
                           "--pp", "2", "--stage-layers", "7,5", "--micro-batch", "1", "--schedule", "1f1b")
        for plan in result["plans"]:
            self.assertEqual(plan["stage_layers"], [7, 5])

    def test_other_objectives(self):
        least = self.json("plan", *small_gpt2(), "--objective", "memory")
        fastest = self.json("plan", *small_gpt2())
        self.assertTrue(least["proven"])
        self.assertLessEqual(least["plans"][0]["memory_bytes"]["total"], fastest["plans"][0]["memory_bytes"]["total"])
        memory = [plan["memory_bytes"]["total"] for plan in least["plans"]]
        self.assertEqual(memory, sorted(memory))
        for objective in ("energy", "cost"):
            self.json("plan", *small_gpt2(), "--objective", objective, "--top", "2")

    def test_json_file_and_text_together(self):
        text = self.done("plan", *small_gpt2(), "--top", "2", "--json", "out.json")
        self.assertIn("MFU", text)
        self.assertEqual(len(self.parse((self.folder / "out.json").read_text())["plans"]), 2)

    def test_the_written_plan_is_the_best_and_self_contained(self):
        result = self.json("plan", *small_gpt2(), "--out", "plan.textproto")
        best = result["plans"][0]
        again = self.json("simulate", "plan.textproto")
        self.check_plan(again)
        for field in ("tp", "pp", "dp", "micro_batch", "schedule", "zero", "recompute", "step_time_s", "memory_bytes",
                      "breakdown_s", "estimate_s"):
            self.assertEqual(again[field], best[field], field)

    def test_models_without_sequences(self):
        result = self.json("plan", "resnet50", "v100-ib100", "--nodes", "4", "--global-batch", "256", "--top", "3")
        for plan in result["plans"]:
            self.check_plan(plan)
            self.assertEqual(plan["tokens_per_s"], 0)
            self.assertGreater(plan["samples_per_s"], 0)

    def test_this_machine(self):
        result = self.json("plan", "gpt2", "localhost", "--gpus", "2", "--global-batch", "4", "--seq-len", "64",
                           "--top", "3")
        self.assertEqual(result["runtime"], "orrery")
        self.assertEqual(result["training"]["precision"], "fp32")
        for plan in result["plans"]:
            self.check_plan(plan)

    def test_gpt3_on_a_thousand_gpus(self):
        result = self.json("plan", "gpt3-175b", "dgx-a100", "--nodes", "128", "--global-batch", "1536", "--seq-len",
                           "2048", "--precision", "bf16")
        best = result["plans"][0]
        self.check_plan(best)
        self.assertLessEqual(best["memory_bytes"]["total"], best["memory_bytes"]["capacity"])
        self.assertEqual(best["tp"] * best["pp"] * best["dp"], 1024)
        self.assertTrue(0.3 < best["mfu"] < 0.75, best["mfu"])

    def test_says_the_load_of_stages_and_replicas(self):
        result = self.json("plan", *small_gpt2(), "--top", "2")
        for plan in result["plans"]:
            load = plan["load"]
            self.assertEqual(len(load["stages"]), plan["pp"])
            self.assertEqual(sum(stage["layers"] for stage in load["stages"]), 12)
            self.assertEqual(sum(group["count"] for group in load["replicas"]), plan["dp"])
            self.assertEqual(sum(group["count"] * group["samples"] for group in load["replicas"]), 8)
            self.assertEqual(max(stage["memory_bytes"] for stage in load["stages"]), plan["memory_bytes"]["total"])
        self.assertIn("stage    layers", self.done("plan", *small_gpt2(), "--top", "1", "--load"))

    def test_says_which_kind_of_system_suits(self):
        result = self.json("plan", "gpt2", "dgx-a100", "--gpus", "4", "--global-batch", "8", "--seq-len", "128",
                           "--recompute", "none")
        kinds = {system["kind"]: system for system in result["systems"]}
        self.assertEqual(list(kinds), ["all-reduce", "sharded", "3d", "async-parameter-server"])
        suits = [system for system in result["systems"] if system["suits"]]
        self.assertEqual(len(suits), 1)
        self.assertEqual(suits[0]["step_time_s"], result["plans"][0]["step_time_s"])
        self.assertGreater(kinds["async-parameter-server"]["bound_s"], 0)
        self.assertIn("Best family: ", result["why"])

    def test_the_pareto_front(self):
        arguments = ("plan", "gpt2", "dgx-a100", "--gpus", "4", "--global-batch", "8", "--seq-len", "128", "--dp", "2")
        front = self.json(*arguments, "--pareto")["pareto"]
        figures = [[plan["step_time_s"], plan["cost_usd"], plan["energy_j"], -plan["headroom_bytes"]] for plan in front]
        for one in figures:
            for other in figures:
                if one != other:
                    self.assertTrue(any(a < b for a, b in zip(one, other)), (one, other))
        text = self.done(*arguments, "--pareto")
        self.assertIn("Pareto front of", text)
        self.assertIn("headroom", text)

    def test_says_what_the_runtime_cannot_run_and_what_is_known_to_run(self):
        pinned = ["plan", "gpt2", "dgx-a100", "--gpus", "8", "--pp", "4", "--schedule", "zero-bubble"]
        answer = self.orrery(*pinned, "--json", "-")
        self.assertEqual(answer.returncode, 0)
        self.assertIn("no zero-bubble schedule", answer.stderr)
        self.assertIn("no zero-bubble schedule", self.parse(answer.stdout)["warnings"][0])
        self.assertEqual(self.json(*pinned, "--any-runtime")["plans"][0]["schedule"], "zero-bubble")
        v = ["plan", "gpt2", "dgx-a100", "--gpus", "8", "--tp", "1", "--pp", "4", "--schedule", "dualpipe-v", "--micro-batch", "1",
             "--global-batch"]
        answer = self.orrery(*v, "8")
        self.assertEqual(answer.returncode, 2)
        self.assertIn("--schedule dualpipe-v with --pp 4", answer.stderr)
        self.assertIn("4 micro-batches (expected at least 8, twice the stages)", answer.stderr)
        self.assertIn("no dualpipe-v schedule", self.orrery(*v, "16").stderr)
        known = self.json("plan", "gpt2", "dgx-a100-40g", "--gpus", "8", "--seq-len", "1024", "--global-batch", "96")["known_recipe"]
        self.assertEqual((known["dp"], known["micro_batch"], known["zero"]), (8, 12, 0))
        self.assertIn("nanoGPT", known["name"])
        self.assertTrue(known["source"])
        self.assertGreater(known["step_time_s"], 0)
        on_tpu = self.json("plan", "llama2-7b", "tpu-v5p-8x8x8", "--gpus", "64", "--global-batch", "256")["known_recipe"]
        self.assertIn("TPU", on_tpu["name"])
        self.assertEqual((on_tpu["dp"], on_tpu["zero"]), (64, 3))
        on_gpu = self.json("plan", "llama2-7b", "dgx-a100", "--nodes", "8", "--global-batch", "256")["known_recipe"]
        self.assertNotIn("TPU", on_gpu["name"])

    def test_unlike_devices_take_shares_by_their_speed(self):
        cluster = DATA / "clusters" / "h100-a100.textproto"
        result = self.json("plan", "llama2-7b", str(cluster), "--global-batch", "64", "--seq-len", "2048", "--tp", "8",
                           "--zero", "1", "--micro-batch", "1", "--schedule", "1f1b", "--rank", "nominal",
                           "--out", "plan.textproto")
        best = result["plans"][0]
        self.assertEqual(sum(best["replica_batches"]), 64)
        self.assertGreater(best["replica_batches"][0], best["replica_batches"][1])
        self.assertEqual([subset["devices"] for subset in result["subsets"]], [8, 8])
        self.assertLess(best["step_time_s"], min(subset["step_time_s"] for subset in result["subsets"]))
        self.assertIn("All 16 devices together need", result["why"])
        self.assertEqual(self.json("simulate", "plan.textproto")["step_time_s"], best["step_time_s"])

    def test_sequences_of_unequal_length_are_padded_packed_or_balanced(self):
        asked = ["plan", "llama2-7b", "dgx-a100", "--gpus", "8", "--global-batch", "16", "--seq-len", "4096",
                 "--lengths", "lognormal:800,500"]
        padded = self.json(*asked, "--out", "plan.textproto")
        self.assertGreater(padded["training"]["lengths"]["mean_tokens"], 700)
        best = padded["plans"][0]
        tokens_each = padded["training"]["lengths"]["mean_tokens"]
        self.assertAlmostEqual(best["tokens_per_s"] * best["step_time_s"] / 16 / tokens_each, 1, places=9)
        self.assertGreaterEqual(best["wait_for_longest"], 1)
        self.assertEqual(self.json("simulate", "plan.textproto")["step_time_s"], best["step_time_s"])
        packed = self.json(*asked, "--packed")["plans"][0]
        self.assertEqual(packed["padded_share"], 0)
        self.assertGreater(packed["tokens_per_s"], best["tokens_per_s"])
        self.assertIn("padding", self.done(*asked, "--micro-batch", "4", "--verbose"))

    def test_lengths_that_are_none_are_refused(self):
        asked = ["plan", "gpt2", "localhost", "--gpus", "1"]
        self.assertIn("expected lognormal:MEAN,SD", self.refused(*asked, "--lengths", "lognormal:5"))
        self.assertIn("expected --lengths beside it", self.refused(*asked, "--packed"))
        asked[1] = "resnet50"
        self.assertIn("how large its samples are", self.refused(*asked, "--lengths", "lognormal:5,1"))


if __name__ == "__main__":
    unittest.main()
