#!/usr/bin/env python3
"""What takes long says so on a terminal, and nowhere else."""
import os
import pty
import re
import select
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import ORRERY

# Sixteen asynchronous workers and servers, message by message: two seconds and more, before any plan is simulated.
LONG = ["plan", "gpt2", "dgx-a100", "--gpus", "16", "--global-batch", "512", "--seq-len", "512", "--sync", "async-parameter-server",
        "--servers", "16", "--micro-batch", "16", "--recompute", "none"]
QUICK = ["plan", "gpt2", "dgx-a100", "--gpus", "8", "--global-batch", "64", "--pp", "1", "--tp", "1", "--top", "1"]


def on_a_terminal(words):
    """Standard output, and what the terminal showed of standard error."""
    ours, its = pty.openpty()
    with subprocess.Popen([ORRERY, *words], stdout=subprocess.PIPE, stderr=its) as process:
        os.close(its)
        shown = b""
        while True:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    some = os.read(ours, 1 << 16)
                except OSError:  # nobody has it open any more
                    break
                if not some:
                    break
                shown += some
            elif process.poll() is not None:
                break
        os.close(ours)
        output = process.stdout.read().decode()
    return process.returncode, output, shown.decode()


class Progress(unittest.TestCase):
    def test_long_work_is_counted_from_the_second_second_on_and_the_line_is_cleared(self):
        code, output, shown = on_a_terminal(LONG)
        self.assertEqual(code, 0, shown)
        self.assertIn("asynchronous parameter", output)
        lines = shown.split("\r")
        told = [match for match in (re.match(r"(?:looking at plans|simulating) \[.*\] \d+/\d+, (\d+) s(, about \d+ s left)?", line)
                                    for line in lines) if match]
        seconds = [int(match[1]) for match in told]
        self.assertEqual(seconds, sorted(seconds))
        self.assertTrue(seconds, shown)
        self.assertTrue(any(match[2] for match in told), shown)
        self.assertEqual(lines[-1], "\x1b[K")  # before the answer

    def test_what_is_quick_shows_nothing(self):
        code, output, shown = on_a_terminal(QUICK)
        self.assertEqual((code, shown), (0, ""))
        self.assertIn("TP 1", output)

    def test_a_file_gets_no_line(self):
        done = subprocess.run([ORRERY, *LONG], capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
