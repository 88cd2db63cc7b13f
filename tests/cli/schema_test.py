"""`orrery schema VERB`: what a verb's JSON holds, published, and held against real answers by a validator of others'."""
import copy
import json
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from orrery_case import OrreryCase, faults_of, small_gpt2, validator_of

def objects(value):
    """Every object of an answer, with the way to it."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from objects(item)


class Schema(OrreryCase):
    def setUp(self):
        super().setUp()
        if validator_of("catalog") is None:
            self.skipTest("no python3-jsonschema")

    def verbs(self):
        return self.done("schema").split()

    def test_every_verb_that_writes_json_has_one(self):
        page = self.done("options")
        verb, writing = None, set()
        for line in page.splitlines():
            verb = line.removeprefix("## orrery ") if line.startswith("## orrery ") else verb
            if line.startswith("| `--json"):
                writing.add(verb)
            if shared := re.match(r"As of `orrery ([\w-]+)`", line):
                writing |= {verb} if shared.group(1) in writing else set()
        self.assertEqual(sorted(writing), sorted(self.verbs()))
        self.refused("schema", "paln", says=["paln", "did you mean 'plan'"])

    def fields(self, schema):
        """Names with their schemas, wherever they stand."""
        for name, of in schema.get("properties", {}).items():
            yield name, of
            yield from self.fields(of)
        for key in ("items", "additionalProperties"):
            if isinstance(schema.get(key), dict):
                yield from self.fields(schema[key])
        for inner in [*schema.get("anyOf", []), *schema.get("$defs", {}).values()]:
            yield from self.fields(inner)

    def test_every_field_says_what_it_means_and_in_which_unit(self):
        for verb in self.verbs():
            schema = json.loads(self.done("schema", verb))
            self.assertEqual(f"urn:orrery:{verb}:1", schema["$id"])
            self.assertEqual(f"orrery/{verb}/1", schema["anyOf"][0]["properties"]["schema"]["const"])
            self.assertEqual("https://json-schema.org/draft/2020-12/schema", schema["$schema"])
            for name, of in self.fields(schema):
                with self.subTest(f"{verb} {name}"):
                    if "x-unit" not in of:
                        self.assertIn("description", of)
                    if re.search(r"_(s|bytes|flops|usd|j)$", name) and name != "mixed_s":
                        self.assertTrue(of.get("x-unit"), name)

    def check(self, answer):
        self.assertEqual([], faults_of(answer))
        # The schema knows every field: one more anywhere, and it says so.
        for at in range(len(list(objects(answer)))):
            more = copy.deepcopy(answer)
            one = list(objects(more))[at]
            if "entries" in answer and one is not more:  # lines of histories of all versions
                break
            one["no_such_field"] = {"none": None}
            if answer["verb"] != "report":
                self.assertNotEqual([], faults_of(more), str(one)[:300])
            if at > 40:
                break
        # And misses those that must be there.
        for key in ("schema", "verb", "version"):
            less = {name: value for name, value in answer.items() if name != key}
            less["verb"] = answer["verb"]
            self.assertEqual(key == "verb", faults_of(less) == [])

    def test_answers_of_every_verb_that_computes(self):
        self.done("plan", *small_gpt2(), "--out", "plan")
        device = self.done("device", "--template")
        (self.folder / "device.textproto").write_text(device)
        self.done("simulate", "plan", "--trace", "a.json")
        for words in (["plan", *small_gpt2()], ["plan", *small_gpt2(), "--pareto", "--top", "3"],
                      ["plan", "resnet50", "dgx-a100", "--gpus", "2", "--global-batch", "64"],
                      ["plan", "gpt2", "dgx-a100", "--gpus", "2", "--global-batch", "8", "--lengths", "lognormal:300,200"],
                      ["simulate", "plan"], ["goodput", "plan", "--steps", "1e6", "--mtbf-device-hours", "1e5"],
                      ["goodput", "plan", "--steps", "1e6", "--mtbf-device-hours", "1e5", "--repair-hours", "4", "--spares", "1"],
                      ["whatif", *small_gpt2(), "--vary", "zero=0,1"],
                      ["whatif", *small_gpt2(), "--vary", "zero=0,1", "--tokens", "1e9", "--deadline-days", "30"],
                      ["collective", "all_reduce", "dgx-a100", "--bytes", "1M"], ["catalog"], ["describe", "gpt2"],
                      ["describe", "resnet50"], ["discover"], ["export", "plan", "--to", "megatron"], ["measurements"],
                      ["report", "plan", "--search", "off"], ["trace-diff", "a.json", "a.json"],
                      ["compare", "resnet50", "v100-ib100", "--nodes", "2", "--global-batch", "64", "--strategies",
                       "ddp,ps-sync", "--trouble", "slow-device=1:0.5"]):
            with self.subTest(" ".join(map(str, words))):
                self.check(self.json(*words))

    def test_answers_of_verbs_that_measure(self):
        self.done("discover", "--out", "here.textproto")
        self.done("plan", "mlp-300-100", "here.textproto", "--gpus", 2, "--global-batch", 8, "--precision", "fp32", "--out", "plan")
        for words in (["run", "plan", "--steps", 2], ["validate", "plan", "--steps", 2], ["validate", "--history"]):
            with self.subTest(" ".join(map(str, words))):
                self.check(self.json(*words))

    def test_the_validator_of_debian_checks_an_answer_as_the_page_says(self):
        python = "/usr/bin/python3"  # the system's, beside whatever Python runs this
        found = os.path.exists(python) and subprocess.run([python, "-c", "import jsonschema"], capture_output=True)
        if not found or found.returncode:
            self.skipTest("no python3-jsonschema of the system")
        (self.folder / "schema.json").write_text(self.done("schema", "plan"))
        answer = self.json("plan", *small_gpt2())
        for verb, sound in ((answer["verb"], True), ("paln", False)):
            (self.folder / "plan.json").write_text(json.dumps({**answer, "verb": verb}))
            checked = subprocess.run([python, "-m", "jsonschema", "-i", "plan.json", "schema.json"], capture_output=True,
                                     text=True, cwd=self.folder)
            self.assertEqual(sound, checked.returncode == 0, checked.stderr[-300:])
            self.assertNotIn("Traceback", checked.stderr)

    def test_a_no_is_in_the_schema_too(self):
        file = self.folder / "no.json"
        for words in (["plan", "llama3-405b", "dgx-a100", "--gpus", "8", "--micro-batch", "1", "--seq-len", "128"],
                      ["whatif", *small_gpt2(), "--vary", "zero=0,1", "--tokens", "1e12", "--deadline-days", "1e-3"],
                      ["validate", "--history"]):
            with self.subTest(words[0]):
                self.assertEqual(3, self.orrery(*words, "--json", file).returncode)
                answer = json.loads(file.read_text())
                self.assertTrue(answer["why_not"])
                self.check(answer)


if __name__ == "__main__":
    unittest.main()
