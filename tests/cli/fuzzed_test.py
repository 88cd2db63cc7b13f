"""Mutated files and arguments of every verb (tests/fuzz/verbs.py has hours of it; here some rounds), and what that found."""
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import ORRERY, SOURCE, OrreryCase

SEEDS = SOURCE / "tests/fuzz/seeds"


class Fuzzed(OrreryCase):
    def test_some_rounds(self):
        done = subprocess.run([sys.executable, "-B", SOURCE / "tests/fuzz/verbs.py", "0", "1", "60"], capture_output=True, text=True,
                              timeout=500, env={**os.environ, "ORRERY": ORRERY, "ORRERY_FUZZ_KEEP": str(self.folder)})
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"^60 rounds from seed 1 in \d+ s, 0 faults")

    def test_a_run_that_finds_something_fails(self):
        broken = self.folder / "orrery"
        broken.write_text("#!/bin/sh\nexit 139\n")
        broken.chmod(0o755)
        done = subprocess.run([sys.executable, "-B", SOURCE / "tests/fuzz/verbs.py", "0", "1", "1"], capture_output=True, text=True,
                              timeout=100, env={**os.environ, "ORRERY": str(broken), "ORRERY_FUZZ_KEEP": str(self.folder)})
        self.assertEqual(1, done.returncode)
        self.assertIn("exit code 139", done.stdout)

    def test_published_collectives_are_as_their_schema_says(self):
        self.assertEqual(2, self.json("validate", "--published-collectives", SEEDS / "collectives.csv")["all"]["rows"])

    def test_bytes_that_are_no_utf_8_are_replaced_in_json(self):
        table = (SOURCE / "tests/data/measurements/steps.csv").read_bytes().replace(b"remark", b"rem\x94rk", 1)
        (self.folder / "steps.csv").write_bytes(table)
        ignored = self.json("calibrate", "dgx-h100", "--from", "steps.csv", "--out", "mine")["ignored"]
        self.assertIn("the column 'rem\ufffdrk'", " ".join(one["why"] for one in ignored))


if __name__ == "__main__":
    unittest.main()
