"""What people read: 80 columns where nobody looks on, the terminal's where somebody does, colours on terminals alone."""
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import fcntl
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import ORRERY, SOURCE, OrreryCase, small_gpt2

GPT3 = ["plan", "gpt3-175b", "dgx-a100", "--nodes", "128", "--global-batch", "1536", "--seq-len", "2048", "--precision", "bf16"]
BUCKETS = ["plan", "gpt2-xl", "dgx-v100-32g", "--gpus", "32", "--global-batch", "64", "--zero", "0", "--pp", "4"]
SLOW_NETWORK = ["plan", "llama3-8b", "a100-eth100", "--gpus", "32", "--global-batch", "64"]
STEPS = ["calibrate", "dgx-h100", "--from", SOURCE / "tests/data/measurements/steps.csv"]
MIXTRAL = ["plan", "mixtral-8x7b", "dgx-h100", "--nodes", "4", "--global-batch", "128", "--seq-len", "4096"]


class Layout(OrreryCase):
    def check_width(self, text, columns=80):
        for line in text.splitlines():
            longest = max(map(len, line.split()), default=0)  # a path or a URL is not cut
            self.assertLessEqual(len(line), max(columns, longest + 10), line)

    def test_no_verb_writes_a_line_beyond_80_columns(self):
        self.done("plan", *small_gpt2(), "--out", "plan")
        self.done("simulate", "plan", "--trace", "a.json")
        self.done("discover", "--out", "here.textproto")
        self.done("plan", "mlp-300-100", "here.textproto", "--gpus", 2, "--global-batch", 8, "--precision", "fp32", "--out", "local")
        verbs = set(re.findall(r"^  ([\w-]+) ", self.done("--help").partition("Subcommands:")[2], re.M))
        shown = set()
        for words in (GPT3, MIXTRAL, [*MIXTRAL, "--load", "--pareto", "--verbose"], [*GPT3, "--verbose"],
                      ["simulate", "plan"], ["goodput", "plan", "--steps", "1e6", "--mtbf-device-hours", "1e5"],
                      ["whatif", *small_gpt2(), "--vary", "zero=0,1"],
                      ["whatif", *small_gpt2(), "--vary", "zero=0,1", "--vary", "micro-batch=1,2", "--tokens", "1e9", "--deadline-days", "30"],
                      ["collective", "all_reduce", "dgx-a100", "--bytes", "1M,1G"], ["catalog"], ["catalog", "--verbose"],
                      ["describe", "gpt2"], ["describe", "resnet50"], ["describe", "deepseek-v3"], ["discover"], ["measurements"],
                      ["trace-diff", "a.json", "a.json"], ["schema"],
                      ["compare", "resnet50", "v100-ib100", "--nodes", "2", "--global-batch", "64", "--strategies",
                       "ddp,horovod,ps-sync", "--trouble", "slow-device=1:0.5"],
                      ["compare", "resnet50", "v100-ib100", "--nodes", "2", "--global-batch", "64", "--strategies", "ddp", "--verbose"],
                      ["run", "local", "--steps", 2], ["validate", "local", "--steps", 2], ["validate", "--history"],
                      ["report", "plan", "--search", "off", "--out", "page.html"],
                      ["export", "plan", "--to", "deepspeed", "--out", "there"],
                      ["export", "plan", "--to", "chakra", "--out", "there", "--verbose"],
                      ["device", SOURCE / "topologies/devices/tpu-v5e.textproto"],
                      ["device", SOURCE / "topologies/devices/tpu-v5e.textproto", "--verbose"],
                      [*STEPS, "--out", "mine"], [*STEPS, "--out", "mine", "--verbose"]):
            with self.subTest(" ".join(map(str, words))):
                self.check_width(self.done(*words))
                shown.add(words[0])
        # What others' programs read, files to fill in, and pages stay as they are.
        self.assertEqual(verbs - shown, {"serve"})

    def test_a_calibration_says_first_what_it_is_and_where(self):
        short, long = self.done(*STEPS, "--out", "mine"), self.done(*STEPS, "--out", "mine", "--verbose")
        self.assertRegex(short, r"\Adgx-h100 from \d+ steps? of 1 file: plan on this in its place\.\n  mine\nRuntime: [^\n]+\nSteps")
        self.assertRegex(short, r"As before, because nothing was measured of it: [a-z]")
        self.assertNotIn("not measured\n", short)
        self.assertIn("not measured\n", long)
        self.assertIn("steps.csv: a table of measured steps;", re.sub(r"\s+", " ", long))

    def test_a_device_s_verdict_and_interval_come_first(self):
        words = ["device", SOURCE / "topologies/devices/tpu-v5e.textproto"]
        short, long = self.done(*words), self.done(*words, "--verbose")
        self.assertRegex(short, r"\AAll figures are like those of the catalog's devices and nodes\.\ntpu-v5e: a step of")
        self.assertIn("Most would be narrowed by: ", short)
        self.assertLess(len(short.splitlines()), 10)
        self.assertIn("Assumed, because the file does not say it:", long)
        self.assertGreater(long.count("%  "), 3)

    def test_an_export_says_what_it_is_how_it_starts_and_what_differs(self):
        self.done("plan", *small_gpt2(), "--out", "plan")
        short = self.done("export", "plan", "--to", "deepspeed", "--out", "there")
        self.assertRegex(short, r"\Agpt2 on 4 devices of dgx-a100 for deepspeed: TP 2 x")
        self.assertIn("To start it: there/launch.sh\n", short)
        self.assertRegex(short, r"things are done otherwise than planned, or left to you: --verbose")
        notes = self.json("export", "plan", "--to", "deepspeed", "--out", "there")["notes"]
        self.assertGreater(len(notes), 1)
        long = re.sub(r"\s+", " ", self.done("export", "plan", "--to", "deepspeed", "--out", "there", "--verbose"))
        script = (self.folder / "there/launch.sh").read_text()
        for note in notes:
            self.assertIn(re.sub(r"\s+", " ", note), long)
            self.assertIn(f"# NOTE: {note}\n", script)
        self.assertEqual(script.count("# NOTE: "), len(notes))

    def test_helps_are_as_narrow(self):
        self.check_width(self.done("--help"))
        for verb in re.findall(r"^  ([\w-]+) ", self.done("--help").partition("Subcommands:")[2], re.M):
            with self.subTest(verb):
                self.check_width(self.done(verb, "--help"))

    def test_wide_has_every_column_and_says_what_a_narrow_table_leaves_out(self):
        narrow, wide = self.done(*GPT3), self.done(*GPT3, "--wide")
        columns = ("TFLOP/s/device", "regret", "fastest", "bound by", "micro-batch", "slower by")
        for column in columns:
            self.assertIn(column, wide)
        self.assertIn(" bucket", self.done(*BUCKETS, "--wide"))
        said = re.search(r"\(--wide also shows ([^)]*)\)", narrow, re.S)
        self.assertIsNotNone(said, narrow)
        self.assertIn("TFLOP/s/device", said.group(1))
        head = next(line for line in narrow.splitlines() if line.startswith("#"))
        for column in ("tp", "pp", "dp", "step", "memory", "slower by"):
            self.assertIn(column, head)
        self.assertNotIn("--wide also", wide)

    def test_the_answer_comes_first_and_the_rest_on_demand(self):
        short, long = self.done(*GPT3), self.done(*GPT3, "--verbose")
        self.assertRegex(short.splitlines()[2] + short.splitlines()[3], r"TP \d+ x PP \d+")
        for words in ("Best family", "The nearest plan that people run"):
            self.assertNotIn(words, short)
            self.assertIn(words, re.sub(r"\s+", " ", long))
        self.assertNotIn("Twice the bandwidth", self.done(*SLOW_NETWORK))
        self.assertIn("Twice the bandwidth", re.sub(r"\s+", " ", self.done(*SLOW_NETWORK, "--verbose")))

    def on_a_terminal(self, *words, width=None, **environment):
        ours, its = pty.openpty()
        if width:
            fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        inherited = {key: value for key, value in self.environment.items() if key not in ("COLUMNS", "NO_COLOR", "TERM")}
        with subprocess.Popen([ORRERY, *map(str, words)], stdout=its, stderr=its, stdin=subprocess.DEVNULL, cwd=self.folder,
                              env={**inherited, "TERM": "xterm-256color", **environment}) as process:
            os.close(its)
            shown = b""
            while True:
                if not select.select([ours], [], [], 0.2)[0]:
                    if process.poll() is not None:
                        break
                    continue
                try:
                    some = os.read(ours, 1 << 16)
                except OSError:
                    break
                if not some:
                    break
                shown += some
            os.close(ours)
        return shown.decode().replace("\r\n", "\n")

    def test_a_terminal_s_width_is_used(self):
        words = ["describe", "llama3-8b"]
        for width in (60, 132):
            text = self.on_a_terminal(*words, width=width, NO_COLOR="1")
            self.check_width(text, width)
        self.assertIn("8.03 B parameters, 15.0 GiB of weights in bf16; a sample takes 141 TFLOP forward and 422 TFLOP to train\n", text)
        self.assertIn("TFLOP to train\n", self.on_a_terminal(*words, width=80, COLUMNS="132", NO_COLOR="1"))
        # Where there is no terminal nothing of it counts.
        plain = self.done(*words)
        self.environment = {**self.environment, "COLUMNS": "200", "TERM": "xterm"}
        self.assertEqual(plain, self.done(*words))

    def test_colours_are_for_terminals_that_want_them(self):
        words = ["describe", "gpt2"]
        self.assertIn("\033[1m", self.on_a_terminal(*words))
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}):
            self.assertNotIn("\033", self.on_a_terminal(*words, **environment))
        self.assertIn("\033[1m", self.on_a_terminal(*words, NO_COLOR=""))  # no-color.org: not empty
        self.assertNotIn("\033", self.done(*words))
        self.assertIn("\033[1;31morrery:\033[0m ", self.on_a_terminal("plan", "gpt2"))
        self.assertTrue(self.orrery("plan", "gpt2").stderr.startswith("orrery: "))
        # Escapes take no place: lines are laid out alike.
        bare = re.sub("\033\\[[0-9;]*m", "", self.on_a_terminal(*words, width=80))
        self.assertEqual(bare, self.done(*words))


if __name__ == "__main__":
    unittest.main()
