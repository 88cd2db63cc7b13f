"""What all JSON answers share: their head, and the reason of a "no"."""
import json
import unittest

from orrery_case import OrreryCase, faults_of, small_gpt2


class Answers(OrreryCase):
    def setUp(self):
        super().setUp()
        self.plan = self.folder / "plan"

    def check_head(self, verb, answer):
        self.assertEqual(["schema", "verb", "version"], list(answer)[:3])
        self.assertEqual(f"orrery/{verb}/1", answer["schema"])
        self.assertEqual(verb, answer["verb"])
        self.assertIn(f"orrery {answer['version']}\n", self.done("--version"))

    def test_every_answer_begins_alike(self):
        planned = self.json("plan", *small_gpt2(), "--out", self.plan)
        answers = {
            "plan": planned,
            "simulate": self.json("simulate", self.plan),
            "goodput": self.json("goodput", self.plan, "--steps", "1e6", "--mtbf-device-hours", "1e5"),
            "whatif": self.json("whatif", *small_gpt2(), "--vary", "zero=0,1"),
            "collective": self.json("collective", "all_reduce", "dgx-a100", "--bytes", "1M"),
            "catalog": self.json("catalog"),
            "describe": self.json("describe", "gpt2"),
            "discover": self.json("discover"),
            "export": self.json("export", self.plan, "--to", "megatron"),
            "measurements": self.json("measurements"),
            "report": self.json("report", self.plan, "--search", "off"),
        }
        for verb, answer in answers.items():
            with self.subTest(verb):
                self.check_head(verb, answer)
        for verb in ("plan", "simulate", "goodput", "export", "whatif"):
            with self.subTest(verb):
                self.assertEqual(("gpt2", planned["cluster"], 4, planned["runtime"]),
                                 tuple(answers[verb][key] for key in ("workload", "cluster", "devices", "runtime")))

    def refusal(self, *arguments):
        """The JSON of a "no", which stdout and a file hold alike, and the line that people see."""
        shown = self.orrery(*arguments, "--json", "-")
        self.assertEqual(3, shown.returncode, shown.stderr)
        file = self.folder / "no.json"
        self.assertEqual(3, self.orrery(*arguments, "--json", file).returncode)
        answer = json.loads(shown.stdout)  # null where `whatif` has no best point
        self.assertEqual(self.without_clock(answer), self.without_clock(json.loads(file.read_text())))
        self.assertEqual(f"orrery: {answer['why_not']}\n", shown.stderr)
        self.check_head(arguments[0], answer)
        self.assertEqual([], faults_of(answer))
        return answer

    def test_a_no_says_why_in_json_too(self):
        no = self.refusal("plan", "llama3-405b", "dgx-a100", "--gpus", "8", "--micro-batch", "1", "--seq-len", "128")
        self.assertIn("fits in memory", no["why_not"])
        for key in ("workload", "cluster", "devices", "runtime"):
            self.assertIn(key, no)
        self.assertNotIn("plans", no)
        self.done("plan", *small_gpt2(), "--out", self.plan)
        no = self.refusal("goodput", self.plan, "--steps", "1e6", "--mtbf-device-hours", "0.1", "--restart-s", "1000")
        self.assertIn("does not end", no["why_not"])

    def test_a_no_keeps_what_was_found_out(self):
        no = self.refusal("whatif", *small_gpt2(), "--vary", "zero=0,1", "--tokens", "1e12", "--deadline-days", "1e-3")
        self.assertEqual(2, len(no["points"]))

    def test_bad_input_leaves_no_json(self):
        self.refused("plan", "gpt2", "dgx-a100", "--tp", "x", "--json", "no.json")
        self.refused("plan", "gpt2", "dgx-a100", "--tp", "x", "--json", "-")


if __name__ == "__main__":
    unittest.main()
