"""`orrery export`: a plan in the files of other systems."""
import ast
import json
import os
import re
import sys
import unittest
from pathlib import Path

from orrery_case import OrreryCase, small_gpt2


def described_calls(name):
    """Of tests/data/export/NAME: the types of each call's arguments, by their names or places."""
    calls = {}
    for line in (Path(__file__).parents[1] / "data" / "export" / name).read_text().splitlines():
        if not line.startswith("#"):
            call, argument, kind, _meaning = line.split(" ", 3)
            calls.setdefault(call, {})[argument] = kind
    return calls


def kind_of(node):
    if isinstance(node, ast.Constant):
        return type(node.value).__name__
    return {ast.Call: "call", ast.Dict: "dict", ast.Name: "name", ast.Attribute: "name"}.get(type(node), "any")


class Export(OrreryCase):
    def setUp(self):
        super().setUp()
        self.done("plan", *small_gpt2(), "--pp", "2", "--micro-batch", "1", "--out", "plan.textproto")

    def test_text_targets_come_as_files_on_stdout_and_as_json(self):
        for target, file in (("megatron", "launch.sh"), ("deepspeed", "ds_config.json"), ("horovod", "launch.sh")):
            with self.subTest(target):
                result = self.json("export", "plan.textproto", "--to", target)
                self.assertEqual(result["target"], target)
                said = re.findall(r"^# NOTE: (.*)$", "\n".join(entry["content"] for entry in result["files"]), re.M)
                self.assertEqual(result["notes"], list(dict.fromkeys(said)))
                self.assertIn(file, [entry["name"] for entry in result["files"]])
                text = "".join(f"# ==> {entry['name']} <==\n{entry['content']}" for entry in result["files"])
                self.assertEqual(self.done("export", "plan.textproto", "--to", target), text)

    def test_torchtitan_gets_models_that_it_has_and_no_other(self):
        self.refused("export", "plan.textproto", "--to", "torchtitan", says=("torchtitan", "learned positions"))
        self.done("plan", "llama3-8b", "dgx-h100", "--gpus", "8", "--global-batch", "16", "--seq-len", "4096",
                  "--runtime", "torchtitan", "--out", "llama.textproto")
        files = {entry["name"]: entry["content"]
                 for entry in self.json("export", "llama.textproto", "--to", "torchtitan")["files"]}
        self.assertIn('flavor = "orrery"', files["train.toml"])
        compile(files["flavor.py"], "flavor.py", "exec")
        tomllib = __import__("tomllib") if sys.version_info >= (3, 11) else None
        if tomllib:
            self.assertEqual(tomllib.loads(files["train.toml"])["model"]["name"], "llama3")

    def test_megatron_gets_the_plans_own_dimensions(self):
        text = self.done("export", "plan.textproto", "--to", "megatron")
        for flag in ("--tensor-model-parallel-size 2", "--pipeline-model-parallel-size 2", "--micro-batch-size 1",
                     "--global-batch-size 8", "--seq-length 128"):
            self.assertIn(flag, text)

    def test_a_folder_gets_the_same_files_and_scripts_that_run(self):
        listed = self.json("export", "plan.textproto", "--to", "deepspeed")["files"]
        text = self.done("export", "plan.textproto", "--to", "deepspeed", "--out", "new/folder")
        folder = self.folder / "new" / "folder"
        self.assertEqual({entry["name"]: entry["content"] for entry in listed},
                         {path.name: path.read_text() for path in folder.iterdir()})
        for path in folder.iterdir():
            self.assertIn(str(path.relative_to(self.folder)), text)
            self.assertEqual(os.access(path, os.X_OK), path.suffix == ".sh", path)
        json.loads((folder / "ds_config.json").read_text())

    def test_simgrid_gets_a_platform_with_every_device(self):
        text = self.json("export", "plan.textproto", "--to", "simgrid")["files"][0]["content"]
        self.assertEqual(text.count("<host "), 4)
        self.assertIn('version="4.1"', text)

    def test_chakra_gets_a_trace_for_each_rank(self):
        result = self.json("export", "plan.textproto", "--to", "chakra", "--out", "traces")
        names = ["comm_groups.json"] + [f"trace.{rank}.et" for rank in range(4)]
        self.assertEqual([entry["name"] for entry in result["files"]], names)
        self.assertEqual(sorted(path.name for path in (self.folder / "traces").iterdir()), names)
        groups = json.loads((self.folder / "traces" / "comm_groups.json").read_text())
        self.assertIn([0, 1], groups.values())
        self.refused("export", "plan.textproto", "--to", "chakra", says="--out")

    def check_calls(self, text, described, least):
        """Every call into the library is described, with these arguments, of these types."""
        tops = {call.split(".")[0] for call in described}
        seen = 0
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name.split(".")[0] not in tops or "(" in name:  # what calls return has methods of its own
                continue
            self.assertIn(name, described)
            seen += 1
            given = {str(place + 1): value for place, value in enumerate(node.args)}
            given.update({keyword.arg: keyword.value for keyword in node.keywords})
            for argument, value in given.items():
                with self.subTest(call=name, argument=argument):
                    self.assertIn(argument, described[name])
                    self.assertIn(described[name][argument], ("any", kind_of(value)))
        self.assertGreaterEqual(seen, least)

    def files(self, *arguments):
        return {entry["name"]: entry["content"] for entry in self.json("export", *arguments)["files"]}

    def test_python_files_call_what_ray_and_tensorflow_have(self):
        self.done("plan", "llama3-8b", "dgx-h100", "--nodes", "2", "--global-batch", "32", "--seq-len", "4096", "--tp", "1",
                  "--pp", "1", "--cp", "1", "--micro-batch", "1", "--zero", "1", "--recompute", "full", "--out", "data.textproto")
        self.check_calls(self.files("data.textproto", "--to", "ray")["job.py"], described_calls("ray_calls.txt"), 6)
        described = described_calls("tensorflow_calls.txt")
        self.check_calls(self.files("data.textproto", "--to", "tensorflow")["strategy.py"], described, 4)
        self.done("plan", "resnet50", "dgx-a100", "--gpus", "8", "--global-batch", "256", "--sync", "async-parameter-server",
                  "--servers", "2", "--out", "served.textproto")
        self.check_calls(self.files("served.textproto", "--to", "tensorflow")["strategy.py"], described, 6)

    def test_bad_requests_end_in_one_line(self):
        self.refused("export", "plan.textproto", "--to", "mesh-tensorflow", says=("mesh-tensorflow", "did you mean 'tensorflow'?"))
        self.refused("export", "plan.textproto", "--to", "quorum", says=("quorum", "megatron"))
        self.refused("export", "plan.textproto", says="--to")
        self.refused("export", "none.textproto", "--to", "megatron", says="none.textproto")
        (self.folder / "taken").write_text("a file")
        self.refused("export", "plan.textproto", "--to", "megatron", "--out", "taken", says="taken")
        self.refused("export", "plan.textproto", "--to", "megatron", "--out", "taken/below", says="taken")


if __name__ == "__main__":
    unittest.main()
