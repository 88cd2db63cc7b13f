"""How many nodes of each kind of a mixed cluster: the one that docs/clusters.md describes."""
import re
import unittest

from orrery_case import SOURCE, OrreryCase

SMALL = ["gpt2-tiny", "mixed.textproto", "--global-batch", "48", "--seq-len", "64", "--tp", "4", "--pp", "1"]


class MixedNodes(OrreryCase):
    def setUp(self):
        super().setUp()
        files = re.findall(r"```textproto\n(.*?)```", (SOURCE / "docs" / "clusters.md").read_text(), re.S)
        mixed, = (text for text in files if text.count("\ngroups {") == 2)
        (self.folder / "mixed.textproto").write_text(mixed)

    def test_a_plan_is_of_the_nodes_asked_for_and_so_is_what_follows_from_it(self):
        plan = self.json("plan", *SMALL, "--nodes", "2+1", "--out", "two.plan")
        self.assertEqual((plan["nodes"], plan["devices"]), (3, 12))
        self.assertIn("12 devices, 3 nodes (2 of p3.8xlarge + 1 of g4dn.12xlarge)",
                      re.sub(r"\s+", " ", self.done("plan", *SMALL, "--nodes", "2+1")))
        self.assertEqual(self.json("simulate", "two.plan")["ranks"], 12)
        run = self.done("goodput", "two.plan", "--mtbf-device-hours", "10000", "--steps", "1000",
                        "--checkpoint-s", "10")
        self.assertIn("3 nodes (2 of p3.8xlarge + 1 of g4dn.12xlarge)", re.sub(r"\s+", " ", run))

    def test_a_kind_of_which_there_are_none_is_left_out(self):
        alone = self.json("plan", *SMALL, "--nodes", "3+0")
        mixed = (self.folder / "mixed.textproto").read_text()
        (self.folder / "alone.textproto").write_text(mixed[:mixed.index("groups {", mixed.index("groups {") + 1)] +
                                                     mixed[mixed.index("fabric {"):])
        self.assertEqual(alone["plans"], self.json("plan", SMALL[0], "alone.textproto", *SMALL[2:])["plans"])
        one = self.json("collective", "all_reduce", "mixed.textproto", "--nodes", "0+1", "--bytes", "1M")
        self.assertEqual((one["devices"], one["nodes"]), (4, 1))

    def test_whatif_compares_how_many_of_each(self):
        result = self.json("whatif", *SMALL, "--vary", "nodes=3+0,2+1,4")
        self.assertEqual([(point["vary"]["nodes"], point["nodes"], point["devices"]) for point in result["points"]],
                         [("3+0", 3, 12), ("2+1", 3, 12), (4, 4, 16)])
        self.assertEqual(result["points"][1]["step_time_s"], self.json("plan", *SMALL, "--nodes", "2+1")["plans"][0]["step_time_s"])

    def test_counts_that_do_not_match_the_kinds_are_refused_with_what_is_expected(self):
        expected = "(expected how many of each, p3.8xlarge + g4dn.12xlarge: --nodes 3+1 is all of them)"
        for flag, value in (("--nodes", "2"), ("--nodes", "1+1+1"), ("--gpus", "8")):
            self.refused("plan", *SMALL, flag, value,
                         says=f"orrery: {flag} {value}: cluster 'v100-and-t4' has 2 kinds of node {expected}")
        self.refused("whatif", *SMALL, "--vary", "nodes=2+1,2", says=["nodes=2", "2 kinds of node", expected])
        self.refused("plan", "gpt2", "dgx-a100", "--nodes", "1+1", says="1 kind of node (expected one number)")
        for wrong in ("0+0", "3+", "two"):
            self.refused("plan", *SMALL, "--nodes", wrong, says=[f"--nodes {wrong}", "or one of each kind of node, as in 3+5"])


if __name__ == "__main__":
    unittest.main()
