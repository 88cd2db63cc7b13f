"""Bad input: one line, exit code 2, and no file left behind."""
import json
import re
import subprocess
import unittest

from orrery_case import ORRERY, OrreryCase

CLUSTER = """
name: "bench"
groups {{
  node {{
    name: "box" device: "a100-sxm-80g" devices: 2
    intra {{ kind: NVSWITCH bandwidth_bytes_per_s: {bandwidth} latency_s: 1e-6 }}
    nic {{ count: 2 bandwidth_bytes_per_s: 25e9 latency_s: 1e-6 direct: true pcie_bandwidth_bytes_per_s: 25e9 }}
    {extra}
  }}
  count: 2
}}
fabric {{ kind: STAR transport: INFINIBAND switch_latency_s: 1e-7 }}
{top}
"""


def cluster(bandwidth="300e9", extra="", top=""):
    return CLUSTER.format(bandwidth=bandwidth, extra=extra, top=top)


class BadInput(OrreryCase):
    def file(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def plan(self, *arguments, **expected):
        """`orrery plan` of GPT-2 on one node with these options, which must be refused."""
        return self.refused("plan", "gpt2", "dgx-a100", "--gpus", "8", *arguments, "--out", "out.textproto",
                            "--json", "out.json", **expected)

    # Usage
    def test_no_verb(self):
        self.refused()

    def test_a_place_that_cannot_be_written_is_said_before_what_takes_long(self):
        self.done("discover", "--out", "here.textproto")
        self.done("plan", "mlp-300-100", "here.textproto", "--gpus", 1, "--global-batch", 8, "--precision", "fp32", "--out", "plan.textproto")
        for words in (["run", "plan.textproto", "--steps", 1_000_000, "--json"], ["run", "plan.textproto", "--steps", 1_000_000, "--trace"],
                      ["validate", "plan.textproto", "--steps", 1_000_000, "--json"], ["calibrate", "--out"], ["calibrate", "--json"],
                      ["calibrate", "here.textproto", "--out"]):
            for place in ("nowhere/file", "."):
                result = self.orrery(*words, place, timeout=20)  # mpirun may have a word about sockets, too
                self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
                self.assertRegex(result.stderr, rf"(?m)^orrery: .*{re.escape(place)}: cannot be written: ")

    def test_a_full_disk_behind_stdout(self):
        for words in (["plan", "gpt2", "dgx-a100", "--gpus", "8"], ["plan", "gpt2", "dgx-a100", "--gpus", "8", "--json", "-"],
                      ["schema", "plan"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([ORRERY, *words], stdout=full, stderr=subprocess.PIPE, text=True, env=self.environment)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertRegex(result.stderr, "^orrery: .*No space left on device[^\n]*\n$")

    def test_what_compare_cannot_act_on(self):
        asked = ["compare", "gpt2", "v100-ib100", "--nodes", "3", "--strategies", "ddp,ps-sync"]
        for option, value in (("--horizon", "100"), ("--checkpoint-every", "5"), ("--restart-s", "7"), ("--replace-s", "7")):
            self.refused(*asked, option, value, says=[option, "--trouble"])
        self.refused(*asked, "--trouble", "dies=worker:1@100", "--horizon", "50", says=["dies=worker:1@100", "--horizon"])
        self.refused(*asked, "--global-batch", "3", "--micro-batch", "2", says=["--micro-batch 2", "each of 3 devices has 1 sample"])
        two = cluster().replace("groups {", "groups { count: 1 node { name: 'v' device: 'v100-sxm2-16g' devices: 2 "
                                "intra { kind: NVSWITCH bandwidth_bytes_per_s: 1e11 latency_s: 1e-6 } nic { count: 2 "
                                "bandwidth_bytes_per_s: 25e9 latency_s: 1e-6 direct: true pcie_bandwidth_bytes_per_s: 25e9 } } }\n"
                                "groups {", 1)
        self.file("two.textproto", two)
        self.refused("compare", "gpt2", "two.textproto", says=["two.textproto: the cluster has 2 kinds of node"])

    def test_unknown_verb(self):
        self.refused("foretell")

    def test_unknown_option(self):
        self.plan("--frobnicate", says="--frobnicate")

    def test_missing_arguments(self):
        self.refused("plan", "gpt2")

    def test_option_without_its_value(self):
        self.refused("plan", "gpt2", "dgx-a100", "--tp")

    def test_another_option_is_no_value(self):
        self.refused("validate", "--published", "--runtime", "default", "steps.csv", says="--published is followed by --runtime")
        self.refused("plan", "gpt2", "dgx-a100", "--gpus", "8", "--out", "--json", says="--out is followed by --json")

    def test_a_batch_that_nobody_trains_on(self):
        self.plan("--global-batch", "2G", says=["--global-batch", "67108864"])

    def test_what_was_validated_and_damaged_is_left_out(self):
        whole = {"when": "2026-11-25T00:00:00Z", "plan": "p", "workload": "w", "cluster": "localhost", "predicted_step_time_s": 1,
                 "measured_step_time_s": 1, "relative_error": 0}
        (self.folder / "data").mkdir(exist_ok=True)
        for kinds in (None, 3, [{"kind": 1, "predicted_s": 1, "measured_s": 1}], [{"kind": "forward", "predicted_s": None}]):
            (self.folder / "data/history.jsonl").write_text(json.dumps({**whole, "by_kind": kinds}) + "\n")
            self.assertEqual(self.orrery("calibrate", "--from-history", "--out", "x").returncode, 3, kinds)

    def test_a_validation_of_nothing_writes_nothing(self):
        (self.folder / "steps.csv").write_text("source,framework,model,gpu,n_gpus,step_time_s\n")
        (self.folder / "nccl.csv").write_text("source,collective,kind,gpu,n_gpus,n_nodes,size_bytes,time_ms\n")
        self.refused("validate", "--published", "steps.csv", "--markdown", "out.md", "--json", "out.json")
        self.refused("validate", "--published-collectives", "nccl.csv", "--json", "out.json")
        self.assertFalse((self.folder / "out.json").exists() or (self.folder / "out.md").exists())

    def test_where_one_output_cannot_be_written_the_other_is_not(self):
        self.refused("plan", "gpt2", "dgx-a100", "--out", "plan", "--json", "no/such/place", says="no/such/place")
        self.refused("plan", "gpt2", "dgx-a100", "--out", "same", "--json", "./same", says="two outputs")
        self.assertFalse((self.folder / "plan").exists() or (self.folder / "same").exists())

    def test_words_where_a_number_belongs(self):
        self.plan("--tp", "two", says="--tp")

    def test_fraction_where_a_count_belongs(self):
        self.plan("--tp", "1.5", says="--tp")

    def test_no_nodes(self):
        self.refused("plan", "gpt2", "dgx-a100", "--nodes", "0", says="--nodes")

    def test_negative_nodes(self):
        self.refused("plan", "gpt2", "dgx-a100", "--nodes", "-4")

    def test_a_count_beyond_all_integers(self):
        self.plan("--global-batch", "99999999999999999999999")

    def test_nan_for_a_number(self):
        self.plan("--capacity-factor", "nan", says="nan")

    def test_infinity_for_a_number(self):
        self.plan("--capacity-factor", "inf", says="inf")

    def test_ratio_that_is_none(self):
        self.plan("--grad-compression", "topk:nan", says="--grad-compression")

    def test_unknown_values_of_words(self):
        for option in ("--schedule", "--recompute", "--precision", "--optimizer", "--attention", "--objective",
                       "--sync", "--grad-compression", "--runtime", "--sequence-parallel", "--order"):
            with self.subTest(option):
                self.plan(option, "sideways", says="sideways")

    def test_words_are_taken_in_any_case_and_the_nearest_is_named(self):
        for option, wrong, meant in (("--schedule", "1f2b", "1f1b"), ("--attention", "fusd", "fused"),
                                     ("--sequence-parallel", "onn", "on"), ("--sync", "all-reduc", "all-reduce"),
                                     ("--runtime", "megatron-cor", "megatron-core")):
            with self.subTest(option):
                self.plan(option, wrong, says=[option if option != "--runtime" else "runtime", wrong, f"'{meant}'"])
        self.refused("collective", "all_reduc", "dgx-a100", "--bytes", "1M", says="did you mean 'all_reduce'")
        self.refused("compare", "resnet50", "v100-ib100", "--nodes", "2", "--strategies", "hovorod", says="'horovod'")
        self.refused("compare", "resnet50", "v100-ib100", "--nodes", "2", "--trouble", "slow-devise=1:0.5",
                     says="did you mean slow-device=RANK:SPEED")
        self.done("collective", "ALL_REDUCE", "dgx-a100", "--bytes", "1M", "--algorithm", "RING")
        self.done("plan", "gpt2", "dgx-a100", "--gpus", "4", "--global-batch", "8", "--seq-len", "128", "--tp", "2",
                  "--sequence-parallel", "ON", "--precision", "BF16", "--out", "plan")
        self.done("simulate", "plan", "--fold", "OFF", "--detail", "FLOWS")
        self.done("export", "plan", "--to", "MEGATRON")
        self.refused("export", "plan", "--to", "megatorn", says="'megatron'")

    def test_a_million_nodes_are_refused_at_once(self):
        for words in (["plan", "gpt2"], ["whatif", "gpt2"], ["compare", "resnet50"], ["collective", "all_reduce"]):
            more = {"whatif": ["--vary", "zero=0,1"], "collective": ["--bytes", "1M"]}.get(words[0], [])
            for cluster in ("v100-ib100", "dgx-h100"):
                with self.subTest(words[0]):
                    self.refused(*words, cluster, "--nodes", "1000000", *more, says="800000 devices")

    def test_order_that_names_a_dimension_twice(self):
        self.plan("--order", "tp,tp,ep,dp,pp", says="--order")

    def test_nodes_and_gpus_together(self):
        self.plan("--nodes", "1", says="--nodes")

    # Contradictions
    def test_tp_that_does_not_divide_the_heads(self):
        self.refused("plan", "gpt2", "dgx-a100", "--gpus", "8", "--tp", "8", says="heads")

    def test_tp_that_does_not_divide_the_devices(self):
        self.plan("--tp", "3", says="8 devices")

    def test_batch_that_does_not_divide(self):
        self.plan("--global-batch", "7", "--dp", "8", says="7")

    def test_micro_batch_that_does_not_divide(self):
        self.plan("--global-batch", "16", "--dp", "8", "--micro-batch", "3")

    def test_pins_of_more_devices_than_there_are(self):
        self.plan("--tp", "4", "--pp", "2", "--dp", "2", says="8 devices")

    def test_interleaving_without_its_schedule(self):
        self.plan("--schedule", "1f1b", "--interleave", "2", "--pp", "2", says="--interleave")

    def test_stage_layers_that_do_not_add_up(self):
        self.plan("--pp", "2", "--stage-layers", "6,7", says="12 layers")

    def test_more_stages_than_layers(self):
        self.refused("plan", "gpt2", "dgx-a100", "--nodes", "2", "--pp", "16", "--global-batch", "16", says="12")

    def test_gpus_that_are_no_whole_nodes(self):
        self.refused("plan", "gpt2", "dgx-a100", "--gpus", "12")

    def test_sequence_length_of_a_model_without_sequences(self):
        self.refused("plan", "resnet50", "dgx-a100", "--gpus", "8", "--seq-len", "128", says="--seq-len")

    # Names and files
    def test_unknown_catalog_names_are_answered_with_near_ones(self):
        self.refused("plan", "gpt3-157b", "dgx-a100", says="gpt3-175b")
        self.refused("plan", "gpt2", "dgx-a1000", says="dgx-a100")

    def test_missing_file(self):
        self.refused("plan", "nowhere/config.json", "dgx-a100", says="nowhere/config.json")
        self.refused("simulate", "nowhere.textproto", says="nowhere.textproto")

    def test_folder_as_a_file(self):
        (self.folder / "folder.textproto").mkdir()
        self.refused("plan", "gpt2", self.folder / "folder.textproto", says="folder")
        self.refused("simulate", self.folder / "folder.textproto", says="folder")

    def test_empty_files(self):
        for name in ("empty.json", "empty.onnx", "empty.textproto"):
            with self.subTest(name):
                self.refused("plan", self.file(name, ""), "dgx-a100", says=name)
        self.refused("plan", "gpt2", self.file("cluster.textproto", ""))
        self.refused("simulate", self.file("plan.textproto", ""))

    def test_binary_garbage(self):
        garbage = bytes((i * 167 + 13) % 256 for i in range(4096))
        for name in ("garbage.json", "garbage.onnx", "garbage.textproto"):
            with self.subTest(name):
                self.refused("plan", self.file(name, garbage), "dgx-a100", says=name)
        self.refused("plan", "gpt2", self.file("cluster.textproto", garbage))
        self.refused("simulate", self.file("plan.textproto", garbage))
        self.refused("plan", "gpt2", self.file("platform.xml", garbage))

    def test_unknown_key_in_a_textproto(self):
        path = self.file("cluster.textproto", cluster(extra="flux_capacitors: 3"))
        self.refused("plan", "gpt2", path, says=["cluster.textproto:8", "flux_capacitors"])

    def test_negative_bandwidth(self):
        self.refused("plan", "gpt2", self.file("cluster.textproto", cluster(bandwidth="-300e9")),
                     says="cluster.textproto:6")

    def test_bandwidths_that_are_no_numbers(self):
        for value in ("nan", "inf"):
            with self.subTest(value):
                self.refused("plan", "gpt2", self.file("cluster.textproto", cluster(bandwidth=value)))

    def test_unknown_enumerator_in_a_textproto(self):
        text = cluster().replace("STAR", "SPAGHETTI")
        self.refused("plan", "gpt2", self.file("cluster.textproto", text), says="SPAGHETTI")

    def test_nodes_cut_off_by_dead_ports(self):
        dead = "".join(f'overrides {{ node: 1 port: {port} target: "nic" speed: 0 }}\n' for port in (0, 1))
        self.refused("plan", "gpt2", self.file("cluster.textproto", cluster(top=dead)), "--global-batch", "8")

    def test_truncated_onnx(self):
        # The beginning of a real ONNX file: ir_version 8, producer "pytorch", and a graph that says it is longer.
        self.refused("plan", self.file("model.onnx", b"\x08\x08\x12\x07pytorch:\xff\xff\x7f\x0a\x10"), "dgx-a100",
                     says="model.onnx")

    def test_deeply_nested_json(self):
        self.refused("plan", self.file("config.json", "[" * 200000), "dgx-a100", says="config.json")

    def test_json_with_too_many_values(self):
        self.refused("plan", self.file("config.json", '{"model_type": [' + "0," * 1500000 + "0]}"), "dgx-a100",
                     says="config.json")

    def test_json_of_no_model(self):
        self.refused("plan", self.file("config.json", '{"model_type": "horoscope"}'), "dgx-a100", says="horoscope")
        self.refused("plan", self.file("list.json", "[1, 2, 3]"), "dgx-a100", says="list.json")

    def test_plan_file_that_holds_another_message(self):
        self.refused("simulate", self.file("plan.textproto", cluster()), says="plan.textproto")

    # Output
    def test_an_srun_that_gives_up_is_named(self):
        self.done("plan", "mlp-300-100", "localhost", "--gpus", 1, "--global-batch", 8, "--precision", "fp32", "--out", "plan.textproto")
        self.file("srun", "#!/bin/sh\necho 'srun: error: no controller' >&2\nexit 1\n").chmod(0o755)
        self.environment["PATH"] = f"{self.folder}:{self.environment['PATH']}"
        result = self.orrery("run", "plan.textproto", "--launcher", "srun")
        self.assertEqual((result.returncode, result.stdout), (1, ""), result.stderr)
        self.assertRegex(result.stderr, r"(?m)^orrery: the job was ended: \S+srun gave up \(exit code 1\) and no rank said why: srun has")
        for labelled, code in (("0: orrery: no rank likes this", 1), ("elsewhere", 3)):  # a rank's own, and one that is kept elsewhere
            self.file("srun", f"#!/bin/sh\necho '{labelled}' >&2\nexit {code}\n")
            result = self.orrery("run", "plan.textproto", "--launcher", "srun")
            self.assertEqual((result.returncode, result.stderr), (code, labelled + "\n"))

    def test_output_into_a_missing_folder(self):
        self.refused("plan", "gpt2", "dgx-a100", "--gpus", "2", "--tp", "2", "--micro-batch", "1", "--seq-len", "128",
                     "--out", "nowhere/plan.textproto", says="nowhere/plan.textproto")

    def test_json_into_a_folder(self):
        (self.folder / "folder").mkdir()
        self.refused("collective", "all_reduce", "dgx-a100", "--gpus", "2", "--bytes", "1K", "--json",
                     self.folder / "folder")

    # Other verbs
    def test_unknown_collective(self):
        self.refused("collective", "all_confuse", "dgx-a100", "--bytes", "8", says="all_confuse")

    def test_bytes_that_are_none(self):
        for value in ("many", "-5", "nan", "inf", "12Q", ""):
            with self.subTest(value):
                self.refused("collective", "all_reduce", "dgx-a100", f"--bytes={value}")

    def test_unknown_algorithm(self):
        self.refused("collective", "all_reduce", "dgx-a100", "--bytes", "8", "--algorithm", "telepathy",
                     says="telepathy")

    def test_unknown_detail_and_fold(self):
        self.refused("simulate", "plan.textproto", "--detail", "atoms", says="atoms")
        self.refused("simulate", "plan.textproto", "--fold", "perhaps", says="perhaps")


class NoAnswer(OrreryCase):
    def test_says_what_is_short_and_what_would_do(self):
        line = self.refused("plan", "gpt3-175b", "dgx-a100", "--nodes", "1", "--global-batch", "8", code=3,
                            says=["fits", "stage", "nodes"])
        self.assertRegex(line, r"needs [0-9.]+ [GT]iB")

    def test_says_which_pin_stands_in_the_way(self):
        self.refused("plan", "gpt2-xl", "v100-ib100", "--nodes", "2", "--micro-batch", "64", "--recompute", "none",
                     "--attention", "unfused", "--global-batch", "128", "--precision", "fp32", code=3,
                     says="without --micro-batch")

    def test_misspelt_words_meet_what_was_meant(self):
        self.refused("paln", "gpt2", "dgx-a100", says="no verb 'paln' (did you mean 'plan'?)")
        self.refused("plan", "gpt2", "dgx-a100", "--nods", "2", says="no option --nods (did you mean '--nodes'")
        self.refused("plan", "gtp2", "dgx-a100", says="unknown workload 'gtp2' (did you mean 'gpt2'")
        self.refused("plan", "gpt2", "dgx-a10", says="did you mean 'dgx-a100'")
        self.refused("plan", "gpt2", "dgx-a100", "--entirely-else", "2", says="see orrery plan --help")
        self.refused("frobnicate", says="no verb 'frobnicate'")
        self.refused("frobnicate", "catalog", says="no verb 'frobnicate'")

    def test_values_in_any_case_and_counts_with_suffixes(self):
        small = ["plan", "gpt2", "dgx-a100", "--gpus", "2", "--budget", "0.1", "--json", "-"]
        plain = json.loads(self.done(*small, "--global-batch", "1024", "--seq-len", "512", "--precision", "bf16",
                                     "--schedule", "1f1b"))
        same = json.loads(self.done(*small, "--global-batch", "1k", "--seq-len", "0.5k", "--precision", "BF16",
                                    "--schedule", "1F1B"))
        for answer in (plain, same):
            answer.pop("search_s")
        self.assertEqual(plain, same)
        self.refused(*small[:-2], "--seq-len", "1.3k", says="--seq-len 1.3k (expected a whole number")


if __name__ == "__main__":
    unittest.main()
