#!/usr/bin/env python3
"""`orrery report`: one page that says what the answers say, shown by a real browser without a word of complaint."""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


class Report(OrreryCase):
    def plan(self, *words):
        self.done("plan", *words, "--out", self.folder / "plan")
        return self.folder / "plan"

    def page(self, *files):
        out = self.folder / "page.html"
        self.done("report", *files, "--out", out)
        return out

    def shown(self, page, *options):
        """What the browser has made of a page, and what it has complained of."""
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--log-level=0",
                   f"--user-data-dir={self.folder / 'browser'}", "--virtual-time-budget=6000", *options, "--dump-dom",
                   page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return done.stdout, complaints

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

    def test_a_browser_shows_every_part_and_complains_of_nothing(self):
        if CHROMIUM is None:
            self.skipTest("there is no browser (Debian: chromium)")
        plan = self.plan("mixtral-8x7b", "dgx-h100", "--gpus", 16, "--global-batch", 64, "--precision", "bf16")
        whatif = self.folder / "a</script><script>document.title='x'</script>.json".replace("/", "")
        self.done("whatif", "gpt2", "dgx-a100", "--vary", "nodes=1,2,4", "--global-batch", 512, "--tokens", "1e10", "--json", whatif)
        page = self.page(plan, whatif)
        for options in (["--window-size=1280,7000"], ["--blink-settings=preferredColorScheme=0", "--window-size=500,9000"]):
            seen, complaints = self.shown(page, *options)
            self.assertEqual(complaints, [])
            titles = [html.unescape(re.sub("<.*?>", "", title)) for title in re.findall("<h2.*?</h2>", seen)]
            for part in ("The answer", "Why", "A step over time", "Memory over a step", "Links", "What this rests on"):
                self.assertIn(part, titles)
            self.assertTrue(any(title.startswith("What if") for title in titles), titles)
            self.assertGreater(seen.count('class="chart"'), 5)
            self.assertGreater(seen.count("<canvas") + seen.count("<svg"), 2)
            self.assertIn("TP ", seen)
            self.assertIn("<title>mixtral-8x7b", seen)

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
