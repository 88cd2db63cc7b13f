#!/usr/bin/env python3
"""The promise in small: on real clusters of four hosts, calibrated without running any plan, steps are predicted, plans
are put in order, and the first choice is the best or near it. `accuracy.py` prints the whole tables."""
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import accuracy
import namespaces
from orrery_case import walked

# Long messages in every form, and short ones.
PLANS = {"wide": walked(["dp4", "dp4 zero3", "dp4 fp16", "dp4 servers", "tp2 dp2", "pp4 gpipe", "pp4 1f1b", "pp2 dp2",
                         "pp2 dp2 uneven"], 2),
         "narrow": ["dp4", "tp2 dp2", "pp4 1f1b"]}
# Of clearly different lengths, and quick: among so few the order of two that noise can swap would decide.
FEW = {"wide": ["dp4 fp16", "pp4 gpipe", "tp2 dp2", "pp2 dp2"]}
QUICK = {"wide": ["pp4 gpipe", "pp4 1f1b", "pp2 tp2"]}
UNEVEN = [("racks", FEW), ("slow-link", QUICK), ("slow-host", FEW)]
# What predictions are held to (docs/one-machine.md).
LIMITS = dict(median=0.10, worst=0.20, tau=0.8, regret=0.05)
# A machine's pace may move between what is calibrated and what is measured, and nothing says so where its host hides what it
# takes: then the next attempt decides, or what plans take in the median of all.
ATTEMPTS = 4
STEPS = 4


def missed(summary):
    """The targets that were missed."""
    return [name for name, limit in LIMITS.items()
            if (summary[name] < limit if name == "tau" else summary[name] > limit)]


def in_the_median(attempts):
    """Of the rows of several attempts at the same plans one each."""
    return [{**same[0], **{key: statistics.median(row[key] for row in same) for key in ("predicted_s", "measured_s")}}
            for same in zip(*attempts)]


class Accuracy(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory(prefix="orrery-accuracy-")
        cls.addClassCleanup(cls.kept.cleanup)
        cls.folder = pathlib.Path(cls.kept.name)
        os.environ["ORRERY_DATA_DIR"] = str(cls.folder)
        cls.host = None

    def judge(self, cluster, plans):
        tried = []
        for attempt in range(ATTEMPTS):
            host = Accuracy.host if attempt == 0 else None  # which may be what was measured badly
            try:
                rows = accuracy.judge(cluster, self.folder, STEPS, plans, print, host, strict=True)
            except namespaces.Disturbed as error:
                self.skipTest(f"the host gives this machine's processors to others: {error}")
            if host is None:
                Accuracy.host = self.folder / "host.textproto"
                shutil.copy(self.folder / f"{cluster}-calibrated.textproto", Accuracy.host)
            self.assertEqual(len(rows), sum(map(len, plans.values())))
            tried.append(rows)
            summaries = [accuracy.summary(rows), accuracy.summary(in_the_median(tried))]
            for name, summary in zip(("alone", "in the median"), summaries):
                print(f"{cluster}, attempt {attempt + 1} {name}: {summary}, missed {missed(summary)}", flush=True)
            if not all(map(missed, summaries)) or time.monotonic() - accuracy.BEGUN > accuracy.PATIENCE_S:
                break
        self.assertTrue(not all(map(missed, summaries)), summaries)

    def test_1_plans_on_four_hosts_of_one_switch(self):
        self.judge("star", PLANS)

    def test_2_hosts_behind_slow_links_and_a_slow_host(self):
        for cluster, plans in walked(UNEVEN, len(UNEVEN)):
            with self.subTest(cluster):
                self.judge(cluster, plans)


if __name__ == "__main__":
    namespaces.main()
