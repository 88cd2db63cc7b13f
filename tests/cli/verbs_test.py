"""The other verbs' happy paths."""
import json
import pathlib
import unittest

from orrery_case import ORRERY, OrreryCase, small_gpt2


class Verbs(OrreryCase):
    def test_version_names_what_it_is_built_with(self):
        text = self.done("--version")
        for word in ("orrery ", "SimGrid 3.", "protobuf ", "CUDA"):
            self.assertIn(word, text)
        if list(pathlib.Path(ORRERY).parent.glob("orrery-exec-*-cuda")):
            self.assertRegex(text, r"\nCUDA \d+\.\d+")

    def test_help_explains_every_option(self):
        self.assertIn("plan", self.done("--help"))
        for verb in ("catalog", "discover", "plan", "simulate", "collective", "run", "calibrate", "validate",
                     "export"):
            with self.subTest(verb):
                text = self.done(verb, "--help")
                self.assertIn("--json", text)
        text = self.done("plan", "--help")
        for option in ("runtime", "global-batch", "seq-len", "precision", "optimizer", "attention", "objective", "top",
                       "tp", "pp", "dp", "cp", "ep", "etp", "micro-batch", "schedule", "interleave", "zero",
                       "recompute", "shard-group", "stage-layers", "order", "sequence-parallel",
                       "overlap-experts", "overlap-grad-reduce", "bucket-bytes", "grad-compression", "sync", "servers", "staleness",
                       "capacity-factor", "nodes", "gpus", "out", "jobs"):
            self.assertIn(f"--{option} ", text)

    def test_catalog_lists_what_scripts_rely_on(self):
        result = self.json("catalog")
        names = {kind: {entry["name"] for entry in entries} for kind, entries in result.items() if isinstance(entries, list)}
        self.assertLessEqual({"dgx-v100", "dgx-v100-16g", "dgx-v100-32g", "dgx-a100", "dgx-a100-40g", "dgx-h100",
                              "dgx-h200", "dgx-b200", "gb200-nvl72", "v100-ib100", "a100-eth100", "pcie-4090",
                              "localhost"}, names["clusters"])
        self.assertLessEqual({"gpt2", "gpt2-xl", "gpt3-175b", "megatron-22b", "megatron-530b", "megatron-1t",
                              "bert-base", "bert-large", "llama2-7b", "llama2-70b", "llama3-8b", "llama3-70b",
                              "llama3-405b", "mixtral-8x7b", "mixtral-8x22b", "deepseek-v3", "resnet50", "vgg16",
                              "resnet20", "mlp-300-100", "dlrm"}, names["workloads"])
        self.assertLessEqual({"megatron-core", "orrery"}, names["runtimes"])
        self.assertLessEqual({"mi300x-192g", "h800-sxm-80g", "tpu-v5p", "trainium1-core"}, names["devices"])
        rests_on = {entry["name"]: entry["rests_on"] for entry in result["devices"] + result["links"]}
        self.assertEqual("fitted", rests_on["h800-sxm-80g"])
        self.assertEqual("datasheet", rests_on["mi300x-192g"])
        for name in ("mi300x-8", "dgx-h100"):
            timed = self.json("collective", "all_reduce", name, "--bytes", "1M")
            words = {"datasheet": "from its datasheet", "fitted": "fitted"}[timed["rests_on"]["network"]]
            self.assertIn("This rests on: network " + words, self.done("collective", "all_reduce", name, "--bytes", "1M"))
        self.assertEqual("fitted", timed["rests_on"]["network"])
        self.assertEqual("assumed", rests_on["links that are not known"])
        for kind in ("clusters", "networks", "devices", "links"):
            for entry in result[kind]:
                if entry["name"] not in ("dgx-v100", "localhost", "localhost-gpu"):
                    self.assertTrue(entry["source"], entry["name"])
        self.assertIn("gpt3-175b", self.done("catalog"))

    def test_catalog_has_what_people_compare(self):
        result = {kind: {entry["name"]: entry for entry in entries}
                  for kind, entries in self.json("catalog").items() if isinstance(entries, list)}
        mixtral = result["workloads"]["mixtral-8x7b"]
        self.assertEqual((46702792704, 32, 4096), (mixtral["parameters"], mixtral["layers"], mixtral["seq_len"]))
        self.assertEqual(self.json("describe", "mixtral-8x7b")["active_parameters"], mixtral["active_parameters"])
        dgx, h100 = result["clusters"]["dgx-h100"], result["devices"]["h100-sxm-80g"]
        self.assertEqual(("h100-sxm-80g", 8), (dgx["device"], dgx["devices"]))
        self.assertEqual(8 * 400e9 / 8, dgx["network_bytes_per_s"])
        self.assertEqual(h100["price_usd_per_hour"], dgx["price_usd_per_device_hour"])
        self.assertIn("2025", h100["price_as_of"])
        self.assertEqual(9.894e14, h100["peak_flops_per_s"]["bf16"])
        for kind, price in (("devices", "price_usd_per_hour"), ("clusters", "price_usd_per_device_hour")):
            for entry in result[kind].values():
                self.assertEqual(price in entry, bool(entry.get("price_as_of")), entry["name"])
        text = self.done("catalog", "--verbose")
        for word in ("46.7 B", "12.9 B", "8 h100-sxm-80g", "$6.88/h", "since June 2025"):
            self.assertIn(word, text)

    def test_discover_reads_what_nccl_dumped(self):
        # The example of NCCL's documentation: one GPU of eight and its port.
        (self.folder / "topology.xml").write_text("""<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:16:00.0" class="0x060400" vendor="0x1000" device="0xc030" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:18:00.0" class="0x030200" vendor="0x10de" device="0x2335" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:07:00.0" count="18" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0000:19:00.0" class="0x020000" vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>
""")
        result = self.json("discover", "--nccl-topology", "topology.xml", "--out", "node.textproto")
        self.assertEqual((result["devices"], result["groups"][0]["network_ports"]), (1, 1))
        self.done("plan", "gpt2", "node.textproto", "--global-batch", 8)
        self.refused("discover", "--nccl-topology", "nowhere.xml", says="nowhere.xml")
        text = (self.folder / "topology.xml").read_text()
        (self.folder / "topology.xml").write_text(text.replace("0x2335", "0x2339").replace("32.0 GT/s PCIe", "Unknown speed"))
        unknown = ["discover", "--nccl-topology", "topology.xml"]
        self.refused(*unknown, says=["topology.xml:5:", "H100 SXM5 94GB (PCI id 0x2339)", "--device", "h100-sxm-80g, "])
        result = self.json(*unknown, "--device", "h100-sxm-80g", "--out", "node.textproto")
        self.assertEqual(result["groups"][0]["device"], "h100-sxm-80g")
        for note in ("is taken for h100-sxm-80g", "PCIe 3.0, as NCCL does", "gets what PCIe carries, 13.0 GB/s"):
            self.assertIn(note, result["description"])
            self.assertIn(note, (self.folder / "node.textproto").read_text())
        self.assertNotIn("PCIe", self.json(*unknown, "--device", "h100-sxm-80g", "--pcie-rate", 52e9)["description"])
        self.refused(*unknown, "--device", "h300", says="unknown device 'h300'")
        self.refused(*unknown, "--port-rate", 1e9, says="--port-rate without --nvidia-smi")
        self.refused("discover", "--device", "h100-sxm-80g", says="--device")
        self.refused("discover", "--pcie-rate", 1e9, says="--pcie-rate")

    def test_discover_reads_nvidia_smi_s_matrix(self):
        (self.folder / "topo.txt").write_text("""\tGPU0\tGPU1\tNIC0\tCPU Affinity
GPU0\t X \tNV12\tPIX\t0-31
GPU1\tNV12\t X \tPIX\t0-31
NIC0\tPIX\tPIX\t X
""")
        words = ["discover", "--nvidia-smi", "topo.txt", "--device", "a100-sxm-80g"]
        result = self.json(*words, "--port-rate", 25e9, "--out", "node.textproto")
        self.assertEqual((result["devices"], result["groups"][0]["network_ports"]), (2, 1))
        self.assertEqual(self.json(*words)["groups"][0]["network_ports"], 0)
        self.done("plan", "gpt2", "node.textproto", "--global-batch", 8)
        # A port of 400 Gb/s beside an H100 is not throttled by the PCIe of an A100.
        words[-1] = "h100-sxm-80g"
        self.assertIn("PCIe 5.0 x16 (52.0 GB/s)", self.json(*words, "--port-rate", 50e9, "--out", "node.textproto")["description"])
        self.assertIn("pcie_bandwidth_bytes_per_s: 52000000000", (self.folder / "node.textproto").read_text())
        self.assertIn("gets what PCIe carries, 24.0 GB/s",
                      self.json(*words, "--port-rate", 50e9, "--pcie-rate", 24e9)["description"])
        self.refused("discover", "--nvidia-smi", "topo.txt", says="--device")
        self.refused(*words, "--nccl-topology", "topo.txt", says="one of")

    def test_discover_describes_this_machine(self):
        result = self.json("discover", "--out", "here.textproto")
        self.assertGreaterEqual(result["devices"], 1)
        planned = self.json("plan", "gpt2", "here.textproto", "--gpus", "1", "--global-batch", "1", "--seq-len", "32",
                            "--top", "1")
        self.check_plan(planned["plans"][0])

    def test_collective_gives_nccl_tests_figures(self):
        result = self.json("collective", "all_reduce", "dgx-a100", "--gpus", "8", "--bytes", "1K,1M,1G")
        self.assertEqual([row["bytes"] for row in result["results"]], [2**10, 2**20, 2**30])
        times = [row["time_s"] for row in result["results"]]
        self.assertEqual(times, sorted(times))
        for row in result["results"]:
            self.assertAlmostEqual(row["algbw_bytes_per_s"], row["bytes"] / row["time_s"], delta=1)
            self.assertAlmostEqual(row["busbw_bytes_per_s"], row["algbw_bytes_per_s"] * 2 * 7 / 8, delta=1)
            self.assertIn("algorithm", row)
            self.assertIn("protocol", row)
            self.assertGreaterEqual(row["wall_s"], 0)
        # 8 A100 on NVSwitch: 222-235 GB/s in published runs of nccl-tests.
        self.assertTrue(180e9 < result["results"][-1]["busbw_bytes_per_s"] < 300e9)

    def test_collective_of_one_device_and_of_nothing(self):
        result = self.json("collective", "all_gather", "dgx-a100", "--gpus", "1", "--bytes", "0,1M")
        self.assertEqual(len(result["results"]), 2)

    def test_simulate_gives_a_plan_and_its_links(self):
        self.done("plan", *small_gpt2(), "--pp", "2", "--micro-batch", "1", "--out", "plan.textproto")
        result = self.json("simulate", "plan.textproto", "--trace", "trace.json")
        self.check_plan(result)
        self.assertEqual(result["ranks"], 4)
        self.assertTrue(1 <= result["simulated_ranks"] <= 4)
        self.assertGreater(result["events"], 0)
        self.assertGreaterEqual(result["wall_s"], 0)
        for link in result["links"]:
            self.assertTrue(link["name"])
            self.assertTrue(0 <= link["utilization"] <= 1 + 1e-9)
            self.assertGreaterEqual(link["bytes"], 0)
        trace = json.loads((self.folder / "trace.json").read_text())
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        complete = [event for event in events if event["ph"] == "X"]
        self.assertGreater(len({event["pid"] for event in complete}), 1, "both pipeline stages are in the trace")
        self.assertTrue(any("forward" in event["name"] for event in complete))
        # Counters: memory up to what the plan says, rates of communication that come back to nothing.
        counted = {}
        for event in events:
            if event["ph"] == "C":
                counted.setdefault((event["name"], event["pid"]), []).append((event["ts"], event["args"]))
        for pid in {event["pid"] for event in complete}:
            memory = [args["stays"] + args["activations"] for _, args in counted["memory (bytes)", pid]]
            self.assertLessEqual(max(memory), result["memory_bytes"]["total"] * (1 + 1e-9))
            self.assertGreater(max(memory), min(memory))
            rates = counted["communication (bytes/s)", pid]
            self.assertEqual([ts for ts, _ in rates], sorted(ts for ts, _ in rates))
            self.assertGreater(max(sum(args.values()) for _, args in rates), 0)
            self.assertEqual(0, sum(rates[-1][1].values()))
        # Links of each kind carry over time what they carry in all.
        (process,) = {pid for name, pid in counted if name == "links (bytes/s)"}
        self.assertEqual(["network"], [event["args"]["name"] for event in events
                                       if event["name"] == "process_name" and event["pid"] == process])
        rates = counted["links (bytes/s)", process]
        bytes_of = {kind: sum(args[kind] * (after - ts) / 1e6 for (ts, args), (after, _) in zip(rates, rates[1:]))
                    for kind in rates[0][1]}
        self.assertAlmostEqual(1, sum(bytes_of.values()) / sum(link["bytes"] for link in result["links"]), delta=1e-3)
        self.assertEqual(0, sum(rates[-1][1].values()))
        arrows = {event["name"] for event in events if event["ph"] in "sf"}
        self.assertTrue(arrows and all(name.startswith("pipeline_comm, rank ") for name in arrows), arrows)

    def test_simulate_folded_and_unfolded_agree(self):
        self.done("plan", *small_gpt2(), "--out", "plan.textproto")
        folded = self.json("simulate", "plan.textproto")
        whole = self.json("simulate", "plan.textproto", "--fold", "off")
        self.assertEqual(whole["simulated_ranks"], 4)
        self.assertAlmostEqual(folded["step_time_s"] / whole["step_time_s"], 1, delta=0.01)

    def test_simulate_is_the_same_every_time(self):
        self.done("plan", *small_gpt2(), "--out", "plan.textproto")
        first, second = (self.json("simulate", "plan.textproto") for _ in range(2))
        self.assertEqual(self.without_clock(first), self.without_clock(second))


if __name__ == "__main__":
    unittest.main()
