#!/usr/bin/env python3
"""`orrery report`: one page that says what the answers say, small enough to send; how it looks, tests/browser says."""
import json
import os
import pathlib
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase


class Report(OrreryCase):
    def plan(self, *words):
        self.done("plan", *words, "--out", self.folder / "plan")
        return self.folder / "plan"

    def page(self, *files):
        out = self.folder / "page.html"
        self.done("report", *files, "--out", out)
        return out

    def test_a_page_of_64_ranks_is_small_whole_and_the_same_every_time(self):
        plan = self.plan("gpt3-175b", "dgx-a100", "--gpus", 64, "--global-batch", 256, "--seq-len", 2048, "--precision", "bf16")
        page = self.page(plan)
        text = page.read_text()
        self.assertLess(len(text.encode()), 3e6)
        self.assertIn("default-src 'none'", text)
        self.assertNotRegex(re.sub(r"<script.*?</script>", "", text, flags=re.S), r"(src|href)=[\"']?(https?:)?//")
        again = self.folder / "again.html"
        self.done("report", plan, "--out", again)
        self.assertEqual(again.read_text(), text)

    def test_many_micro_batches_and_rings_make_no_larger_page(self):
        plan = self.plan("llama3-70b", "dgx-h100", "--gpus", 64, "--global-batch", 256, "--seq-len", 8192, "--precision", "bf16", "--tp", 1,
                         "--pp", 1, "--cp", 4, "--micro-batch", 1, "--zero", 3, "--recompute", "full:19")
        out = self.folder / "page.html"
        self.done("report", plan, "--search", "off", "--out", out)
        self.assertLess(out.stat().st_size, 3e6)

    def test_it_says_what_simulate_whatif_and_validate_say(self):
        plan = self.plan("llama3-8b", "dgx-h100", "--gpus", 8, "--global-batch", 64, "--precision", "bf16")
        whatif, made = self.folder / "whatif.json", self.folder / "report.json"
        self.done("whatif", "gpt2", "dgx-a100", "--vary", "nodes=1,2,4", "--global-batch", 512, "--tokens", "1e10", "--json", whatif)
        self.done("report", plan, whatif, "--json", made)
        report = json.loads(made.read_text())
        simulated = self.json("simulate", plan)
        self.assertEqual(report["plans"][0]["step_time_s"], simulated["step_time_s"])
        self.assertEqual(report["plans"][0]["memory_bytes"], simulated["memory_bytes"])
        self.assertEqual(report["whatifs"][0]["points"], json.loads(whatif.read_text())["points"])
        text = self.done("report", plan, "--markdown")
        self.assertIn("| of a step | this plan |", text)
        self.assertIn(f"{simulated['step_time_s']:.3f} s", text)

    def test_mistakes_are_one_line_and_nothing_is_written(self):
        out = self.folder / "page.html"
        plan = self.plan("gpt2", "dgx-a100", "--gpus", 1, "--global-batch", 8)
        (self.folder / "list.json").write_text("[1, 2]")
        (self.folder / "other.json").write_text('{"a": 1}')
        for words in (["report", plan], ["report", "/nonexistent", "--out", out], ["report", self.folder / "list.json", "--out", out],
                      ["report", self.folder / "other.json", "--out", out], ["report", plan, "--out", "/nonexistent/page.html"]):
            done = self.orrery(*words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
            self.assertFalse(out.exists())


if __name__ == "__main__":
    unittest.main(verbosity=2)
