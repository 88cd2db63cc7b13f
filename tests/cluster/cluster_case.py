"""What the suites on namespace clusters share."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

import namespaces

ORRERY = os.environ["ORRERY"]
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 128, "vocab_size": 256}


class Run:
    """A job and when each of its steps was done, as its log says."""

    def __init__(self, case, cluster, plan, steps, *options):
        self.log = case.folder / f"log-{time.monotonic_ns()}"
        self.seen = {}  # when a step was seen to be done
        self.errors = case.folder / "err"
        self.began = time.monotonic()
        with open(self.errors, "w") as err:
            self.job = cluster.start([ORRERY, "run", plan, "--steps", str(steps), "--log", self.log, *map(str, options)],
                                     stdout=err, stderr=err)
        case.addCleanup(self.job.kill)

    def look(self):
        """The last step that is done; 0: none."""
        now = time.monotonic()
        if self.log.exists():
            for line in self.log.read_text().splitlines(keepends=True):
                if line.endswith("\n") and "loss" in line:
                    self.seen.setdefault(json.loads(line)["step"], now)
        return max(self.seen, default=0)

    def until(self, step):
        """Until that step is done, or the job has ended; within a minute."""
        while self.look() < step and self.job.poll() is None and time.monotonic() < self.began + 60:
            time.sleep(0.005)
        self.look()
        return self.seen.get(step)


class ClusterCase(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="orrery-cluster-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        os.environ["ORRERY_DATA_DIR"] = str(self.folder / "data")

    def cluster(self, *arguments, **options):
        made = namespaces.Namespaces(*arguments, **options)
        self.enterContext(made) if hasattr(self, "enterContext") else self._enter(made)
        (self.folder / "cluster.textproto").write_text(made.description())
        return made

    def _enter(self, made):
        made.__enter__()
        self.addCleanup(made.__exit__)

    def plan(self, *options, cluster="cluster.textproto", model=None, batch=8, seq=32, optimizer="sgd", name="plan"):
        config = self.folder / "config.json"
        config.write_text(json.dumps({**GPT2, **(model or {})}))
        out = self.folder / name
        done = subprocess.run(
            [ORRERY, "plan", config, self.folder / cluster, "--global-batch", str(batch), "--seq-len", str(seq),
             "--precision", "fp32", "--optimizer", optimizer, "--out", out, *map(str, options)],
            capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        return out

    def wait_until_gone(self, cluster):
        """No rank is left behind on the hosts that live."""
        until = time.monotonic() + 15
        while any(namespaces.call("ip", "netns", "pids", host.namespace, check=False).stdout.split()
                  for host in cluster.hosts):
            self.assertLess(time.monotonic(), until, "processes are left behind")
            time.sleep(0.2)

    def json(self, path):
        return json.loads(pathlib.Path(path).read_text())
