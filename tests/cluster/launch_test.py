#!/usr/bin/env python3
"""Real hosts (network namespaces) described by a cluster file: launched into, trained on, and what faults do there."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import namespaces
from cluster_case import ORRERY, ClusterCase, Run

CAN_MPICH = (pathlib.Path(ORRERY).parent / "orrery-exec-mpich").exists() and shutil.which("mpirun.mpich")


def complaints(text):
    return [line for line in text.splitlines() if line.startswith("orrery: ") and not line.startswith("orrery: NOTE: ")]


class Launch(ClusterCase):
    def test_hosts_of_the_cluster_file_train_what_one_host_trains(self):
        cluster = self.cluster([4])
        for options in (["--dp", "4"], ["--tp", "2", "--pp", "2"]):
            with self.subTest(options):
                plan = self.plan(*options)
                apart, alone = self.folder / "apart.json", self.folder / "alone.json"
                done = cluster.run([ORRERY, "run", plan, "--steps", "3", "--json", apart])
                self.assertEqual(done.returncode, 0, done.stderr)
                # The same plan on this machine alone: the hosts' names taken out of the plan's file.
                local = self.folder / "local"
                local.write_text("\n".join(line for line in plan.read_text().splitlines() if "hosts:" not in line))
                done = subprocess.run([ORRERY, "run", local, "--steps", "3", "--json", alone], capture_output=True,
                                      text=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.json(apart)["loss"], self.json(alone)["loss"])

    def test_traffic_takes_the_time_that_the_links_give_it(self):
        # All-reduce of 4 ranks over 100 Mb/s: a rank's port carries 2 * 3/4 of the gradients each way, 4 bytes each.
        cluster = self.cluster([4])
        plan = self.plan("--dp", "4", "--zero", "0", model={"n_embd": 128})
        out = self.folder / "run.json"
        done = cluster.run([ORRERY, "run", plan, "--steps", "3", "--json", out])
        self.assertEqual(done.returncode, 0, done.stderr)
        parameters = 4 * (12 * 128 * 128 + 13 * 128) + 256 * 128 + 128 * 128 + 2 * 128
        least = 2 * 3 / 4 * parameters * 4 / 12.5e6
        self.assertGreater(self.json(out)["step_time_s"]["min"], least)

    @unittest.skipUnless(CAN_MPICH, "no executor of MPICH's")
    def test_mpich_trains_over_tcp_what_open_mpi_trains_and_the_job_ends(self):
        for hosts, options in ((2, ["--dp", "2"]), (4, ["--tp", "2", "--pp", "2"])):
            with self.subTest(options):
                cluster = self.cluster([hosts])
                plan = self.plan(*options)
                losses = {}
                for mpi in ("openmpi", "mpich"):
                    out = self.folder / f"{mpi}.json"
                    done = cluster.run([ORRERY, "run", plan, "--mpi", mpi, "--steps", "3", "--json", out], timeout=60)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    losses[mpi] = self.json(out)["loss"]
                self.assertEqual(losses["mpich"], losses["openmpi"])
                cluster.remove()

    def test_validate_runs_on_the_hosts_and_is_remembered(self):
        cluster = self.cluster([2, 2], uplink_mbit=50)
        plan = self.plan("--dp", "4")
        done = cluster.run([ORRERY, "validate", plan, "--steps", "3", "--json", self.folder / "v.json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(self.json(self.folder / "v.json")["measured_step_time_s"], 0)
        shown = subprocess.run([ORRERY, "validate", "--history"], capture_output=True, text=True, timeout=30)
        self.assertIn("1 validations", shown.stdout)

    def test_a_host_that_does_not_exist_is_said(self):
        cluster = self.cluster([2])
        text = (self.folder / "cluster.textproto").read_text()
        (self.folder / "cluster.textproto").write_text(text.replace('"host1"', '"nowhere"'))
        done = cluster.run([ORRERY, "run", self.plan("--dp", "2"), "--steps", "2"], timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("a host cannot be reached or has died", done.stderr)

    def wait_for_ranks(self, cluster, job, index):
        """Ranks on a host, once they train."""
        until = time.monotonic() + 60
        while time.monotonic() < until and job.poll() is None:
            found = []
            for process in namespaces.call("ip", "netns", "pids", cluster.hosts[index].namespace,
                                           check=False).stdout.split():
                try:
                    command = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[0]
                except OSError:
                    continue
                if os.path.basename(command).startswith(b"orrery-exec"):
                    found.append(int(process))
            if found:
                time.sleep(2.5)
                return found
            time.sleep(0.1)
        self.fail("no rank started")

    def start(self, cluster, plan, steps, *options):
        job = cluster.start([ORRERY, "run", plan, "--steps", str(steps), *options], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
        self.addCleanup(job.kill)
        return job

    def test_a_killed_rank_ends_the_job_within_seconds(self):
        for mpi in ("openmpi", "mpich") if CAN_MPICH else ("openmpi",):
            with self.subTest(mpi):
                cluster = self.cluster([4])
                job = self.start(cluster, self.plan("--dp", "4"), 100000, "--mpi", mpi)
                ranks = self.wait_for_ranks(cluster, job, 2)
                os.kill(ranks[0], signal.SIGKILL)
                begin = time.monotonic()
                out, error = job.communicate(timeout=60)
                self.assertLess(time.monotonic() - begin, 15)
                self.assertEqual(job.returncode, 1, error)
                self.assertEqual(len(complaints(error)), 1, error)
                cluster.remove()

    def test_a_host_that_dies_ends_the_job_within_seconds(self):
        for mpi in ("openmpi", "mpich") if CAN_MPICH else ("openmpi",):
            with self.subTest(mpi):
                cluster = self.cluster([4])
                job = self.start(cluster, self.plan("--dp", "4"), 100000, "--mpi", mpi)
                self.wait_for_ranks(cluster, job, 3)
                cluster.kill_host(3)
                begin = time.monotonic()
                out, error = job.communicate(timeout=120)
                self.assertLess(time.monotonic() - begin, 30)
                self.assertEqual(job.returncode, 1, error)
                self.assertGreaterEqual(len(complaints(error)), 1, error)
                self.assertNotIn("signal", error)  # nobody killed a rank
                if mpi == "mpich":
                    self.assertIn("a host cannot be reached or has died", error)
                self.wait_until_gone(cluster)
                cluster.remove()

    def test_after_a_host_has_died_training_goes_on_from_the_last_checkpoint_with_the_same_losses(self):
        checkpoints, rest, calm = self.folder / "checkpoints", self.folder / "rest.json", self.folder / "calm.json"
        cluster = self.cluster([4])
        plan = self.plan("--dp", "4")
        job = self.start(cluster, plan, 100000, "--checkpoint-dir", checkpoints, "--checkpoint-every", "5")
        until = time.monotonic() + 60
        while not list(checkpoints.glob("step-*[0-9]")) and time.monotonic() < until:
            time.sleep(0.1)
        cluster.kill_host(3)
        out, error = job.communicate(timeout=120)
        self.assertNotEqual(job.returncode, 0)
        self.assertGreaterEqual(len(complaints(error)), 1, error)
        cluster.remove()  # and the host comes back
        done = max(int(step.name.split("-")[1]) for step in checkpoints.glob("step-*[0-9]"))
        self.assertGreater(done, 0)
        cluster = self.cluster([4])
        after = cluster.run([ORRERY, "run", plan, "--steps", str(done + 2), "--json", rest, "--checkpoint-dir",
                             checkpoints, "--restart"])
        self.assertEqual(after.returncode, 0, after.stderr)
        whole = cluster.run([ORRERY, "run", plan, "--steps", str(done + 2), "--json", calm])
        self.assertEqual(whole.returncode, 0, whole.stderr)
        self.assertEqual(self.json(rest)["loss"], self.json(calm)["loss"][done:])

    def test_a_link_that_is_cut_for_200_ms_makes_one_step_longer_and_no_other_difference(self):
        cluster = self.cluster([4])
        plan = self.plan("--dp", "4", model={"n_embd": 128})
        calm, cut = self.folder / "calm.json", self.folder / "cut.json"
        done = cluster.run([ORRERY, "run", plan, "--steps", "8", "--json", calm])
        self.assertEqual(done.returncode, 0, done.stderr)
        run = Run(self, cluster, plan, 8, "--json", cut)
        self.assertIsNotNone(run.until(2), run.errors.read_text())  # steps, not the start, are cut
        cluster.cut(1)
        time.sleep(0.2)
        cluster.cut(1, down=False)
        run.job.wait(timeout=120)
        self.assertEqual(run.job.returncode, 0, run.errors.read_text())
        self.assertEqual(self.json(cut)["loss"], self.json(calm)["loss"])
        # The machine's pace is that of the same run.
        median, longest = (self.json(cut)["step_time_s"][name] for name in ("median", "max"))
        self.assertGreater(longest, median + 0.15)
        print(f"median step {median:.3f} s, with the cut {longest:.3f} s")


if __name__ == "__main__":
    namespaces.skip_unless_possible()
    unittest.main(verbosity=2)
