"""`orrery device`, and the cluster files of docs/clusters.md: what somebody writes from the documentation works."""
import re
import unittest

from orrery_case import SOURCE, OrreryCase

FIGURES = {'"fp32" flops_per_s': "60e12", '"bf16" flops_per_s': "240e12", "\nmemory_bytes": "51e9",
           "memory_bandwidth_bytes_per_s": "1.2e12", "multiprocessors": "96", "idle_power_w": "40", "peak_power_w": "350"}


class Device(OrreryCase):
    def written(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def filled(self, **changes):
        text = self.done("device", "--template")
        for key, value in {**FIGURES, **changes}.items():
            self.assertEqual(text.count(f"{key}: 0"), 1, key)
            text = text.replace(f"{key}: 0", f"{key}: {value}")
        return text

    def test_a_template_is_refused_until_it_is_filled_in_and_then_a_cluster_plans_with_it(self):
        empty = self.written("empty.textproto", self.done("device", "--template"))
        self.refused("device", empty, says=["empty.textproto:", "expected a positive"])
        profile = self.filled()
        result = self.json("device", self.written("mine.textproto", profile))
        self.assertEqual(result["implausible"], [])
        device, = result["devices"]
        self.assertEqual((device["name"], device["rests_on"]["device"]), ("my-accelerator", "datasheet"))
        self.assertTrue(0.5 < device["step_time_low"] < 1 < device["step_time_high"] < 3)
        shares = [one["share"] for one in device["narrowed_by"]]
        self.assertEqual(shares, sorted(shares, reverse=True))
        self.assertTrue(0.8 < sum(shares) <= 1.0001)
        for assumed in ("matmul", "attention", "'unknown'", "no cost"):
            self.assertIn(assumed, " ".join(result["assumed"]))
        text = self.done("device", "mine.textproto", "--wide")
        self.assertRegex(text, r"with 90% probability\.\n  This rests on: runtime assumed, device from its datasheet")
        self.assertIn("Most would be narrowed by: ", text)
        cluster = self.written("one.textproto", f"""name: "one"
groups {{ count: 1 node {{ device: "my-accelerator" devices: 2 intra {{ kind: PCIE bandwidth_bytes_per_s: 24e9 }} }} }}
devices {{
{profile}
}}""")
        self.assertEqual(self.json("device", cluster)["devices"][0]["name"], "my-accelerator")
        plan = self.json("plan", "gpt2", cluster, "--global-batch", "8", "--seq-len", "128")["plans"][0]
        self.assertEqual(plan["rests_on"]["device"], "datasheet")
        self.assertIn("device from its datasheet", self.done("plan", "gpt2", cluster, "--global-batch", "8", "--seq-len", "128"))

    def test_what_no_device_can_have_is_refused_by_its_line(self):
        text = self.filled(memory_bandwidth_bytes_per_s="25")
        line = 1 + text[:text.index("memory_bandwidth_bytes_per_s: 25")].count("\n")
        self.refused("device", self.written("slow.textproto", text), says=[f"slow.textproto:{line}:", "25 GB/s is 25e9"])
        self.refused("device", says="--template")
        self.refused("device", "--template", "slow.textproto", says="--template")
        self.refused("device", "nowhere.textproto", says="nowhere")

    def test_what_is_unlike_all_known_devices_is_said(self):
        for key, value in (("memory_bandwidth_bytes_per_s", "1.2e15"), ("peak_power_w", "35000"),
                           ('"bf16" flops_per_s', "2400e12"), ("\nmemory_bytes", "51e12")):
            result = self.json("device", self.written("odd.textproto", self.filled(**{key: value})))
            self.assertTrue(result["implausible"], key)
        self.assertRegex(self.done("device", "odd.textproto"), r"Implausible:\n  my-accelerator: memory_bytes is 46.4 TiB; devices")

    def test_links_of_a_cluster_of_catalog_devices_are_looked_at(self):
        mesh = "mesh_links: [0, 1, 1, 2,  1, 0, 2, 1,  1, 2, 0, 1,  2, 1, 1, 0]"

        def implausible(device, intra, nic=""):
            result = self.json("device", self.written("c.textproto", f"""name: "c"
groups {{ count: 1 node {{ device: "{device}" devices: 4 intra {{ {intra} latency_s: 1e-6 }} {nic} }} }}"""))
            self.assertEqual(result["devices"], [])
            return " ".join(result["implausible"])

        rate = "bandwidth_bytes_per_s"
        self.assertIn("25.0 GB/s for all of a device's links, 6.25 GB/s for each of 4; the catalog's nodes of v100-sxm2-16g "
                      "have 25.0 GB/s for each", implausible("v100-sxm2-16g", f"kind: NVLINK_MESH {rate}: 25e9 {mesh}"))
        self.assertEqual(implausible("v100-sxm2-16g", f"kind: NVLINK_MESH {rate}: 100e9 {mesh}"), "")
        for wrong in ("450e12", "900e9", "200e9"):  # a unit, both ways, another generation's
            self.assertIn("the catalog's nodes of h100-sxm-80g have 450 GB/s", implausible("h100-sxm-80g", f"kind: NVSWITCH {rate}: {wrong}"))
        self.assertEqual(implausible("h100-sxm-80g", f"kind: NVSWITCH {rate}: 450e9"), "")
        self.assertIn("nic.bandwidth", implausible("t4", f"kind: PCIE {rate}: 12e9", f"nic {{ count: 1 {rate}: 25e12 latency_s: 1e-6 pcie_{rate}: 12e9 }}"))

    def test_nothing_of_the_catalog_is_implausible(self):
        for file in sorted((SOURCE / "topologies" / "catalog").glob("*.textproto")):
            self.assertEqual(self.json("device", file)["implausible"], [], file.name)
        for file in sorted((SOURCE / "topologies" / "devices").glob("*.textproto")):
            self.assertEqual(self.json("device", file)["implausible"], [], file.name)

    def test_the_documented_clusters_are_what_their_page_says(self):
        files = re.findall(r"```textproto\n(.*?)```", (SOURCE / "docs" / "clusters.md").read_text(), re.S)
        plans = {}
        for text in files:
            name = re.search(r'name: "(.*?)"', text)[1]
            self.written(f"{name}.textproto", text)
            plans[name] = self.json("plan", "gpt2", f"{name}.textproto", "--seq-len", "512")
            self.assertEqual(self.json("device", f"{name}.textproto")["implausible"], [], name)
        self.assertEqual({name: (plan["nodes"], plan["devices"]) for name, plan in plans.items()},
                         {"our-accelerators": (8, 32), "v100-and-t4": (4, 16), "slingshot-site": (48, 192)})
        self.assertEqual([plan["plans"][0]["rests_on"]["device"] for plan in plans.values()],
                         ["datasheet", "fitted", "fitted"])
        checked = self.json("device", "our-accelerators.textproto")
        self.assertEqual((checked["implausible"], checked["devices"][0]["name"]), ([], "my-accelerator"))
        whole = (self.folder / "our-accelerators.textproto").read_text()
        self.written("full.textproto", whole.replace("oversubscription: 4 ", "oversubscription: 1 "))
        reduce = ("--bytes", "100000000")
        slow, fast = (self.json("collective", "all_reduce", f, *reduce)["results"][0]["time_s"]
                      for f in ("our-accelerators.textproto", "full.textproto"))
        self.assertGreaterEqual(slow, fast)
        to_all = [self.json("collective", "all_to_all", f, *reduce)["results"][0]["time_s"]
                  for f in ("our-accelerators.textproto", "full.textproto")]
        self.assertGreater(to_all[0], 1.5 * to_all[1])
        self.refused("device", self.written("typo.textproto", whole.replace("12.5e9", "12.5")), says=["typo.textproto:", "12.5e9"])


if __name__ == "__main__":
    unittest.main()
