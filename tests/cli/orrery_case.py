"""What the suites share: running `orrery`, and the fields of a plan's JSON."""
import functools
import json
import math
import os
import pathlib
import subprocess
import tempfile
import unittest

ORRERY = os.environ["ORRERY"]
SOURCE = pathlib.Path(os.environ.get("ORRERY_SOURCE_DIR", pathlib.Path(__file__).parents[2]))


def walked(grid, nth):
    """What of a long grid a test walks, as tests/support/walked.h says: all of it, with ORRERY_SHORT set every `nth`."""
    return grid[::nth] if "ORRERY_SHORT" in os.environ else grid


NUMBER, TEXT, FLAG, COUNT = "number", "text", "flag", "count"
PLAN_FIELDS = {
    "tp": COUNT, "pp": COUNT, "dp": COUNT, "cp": COUNT, "ep": COUNT, "micro_batch": COUNT, "micro_batches": COUNT,
    "schedule": TEXT, "interleave": COUNT, "zero": COUNT, "shard_group": COUNT, "recompute": TEXT,
    "recompute_layers": COUNT, "recompute_modules": list, "stage_layers": list, "order": list, "sequence_parallel": FLAG,
    "overlap_experts": FLAG, "overlap_grad_reduce": FLAG, "bucket_bytes": NUMBER, "grad_compression": TEXT, "sync": TEXT, "servers": COUNT,
    "staleness": COUNT, "capacity_factor": NUMBER, "step_time_s": NUMBER, "samples_per_s": NUMBER,
    "tokens_per_s": NUMBER, "model_flops": NUMBER, "model_tflops_per_gpu": NUMBER, "mfu": NUMBER, "hfu": NUMBER,
    "memory_bytes": dict, "breakdown_s": dict, "busy_s": dict, "profile": TEXT, "estimate_s": NUMBER,
}
MEMORY_FIELDS = ["total", "weights", "gradients", "optimizer", "activations", "buffers", "capacity"]
BREAKDOWN_FIELDS = ["compute", "recompute", "tensor_comm", "data_comm", "pipeline_comm", "expert_comm",
                    "context_comm", "bubble", "optimizer", "input", "other"]


@functools.lru_cache(maxsize=None)
def validator_of(verb):
    """Of a verb's answers, by the schema that the program publishes; None without python3-jsonschema."""
    try:
        import jsonschema
    except ImportError:
        return None
    schema = json.loads(subprocess.run([ORRERY, "schema", verb], capture_output=True, text=True, check=True).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def faults_of(answer):
    """What the published schema has against an answer: of the form of answers that it is nearest to."""
    validator = validator_of(answer["verb"])
    if validator is None:
        return []
    found = []
    for error in validator.iter_errors(answer):
        of_forms = {}
        for inner in error.context or [error]:
            of_forms.setdefault(inner.schema_path[0], []).append(f"{inner.json_path}: {inner.message[:300]}")
        found += min(of_forms.values(), key=lambda faults: (len(faults), sum(map(len, faults))))
    return found


class OrreryCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="orrery-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        # No calibration of the machine that runs the tests may reach them.
        self.environment = {**os.environ, "ORRERY_DATA_DIR": str(self.folder / "data"), "HOME": str(self.folder)}
        for name in list(self.environment):
            if name.startswith(("OMPI_", "PMI", "SLURM_")):
                del self.environment[name]

    def orrery(self, *arguments, timeout=120):
        return subprocess.run([ORRERY, *map(str, arguments)], capture_output=True, text=True, timeout=timeout,
                              cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL)

    def done(self, *arguments, **options):
        """Stdout of a run that must succeed."""
        result = self.orrery(*arguments, **options)
        self.assertEqual(result.returncode, 0, f"orrery {arguments}: {result.stderr}")
        return result.stdout

    def json(self, *arguments, **options):
        """The JSON that a run writes to stdout, which must hold nothing else and be what its schema says."""
        answer = self.parse(self.done(*arguments, "--json", "-", **options))
        self.assertEqual([], faults_of(answer), f"orrery schema {answer['verb']}")
        return answer

    def parse(self, text):
        def refuse(constant):
            raise AssertionError(f"{constant} in JSON")

        value = json.loads(text, parse_constant=refuse)
        self.assertIsInstance(value, dict)
        self.check_finite(value)
        return value

    def check_finite(self, value):
        if isinstance(value, float):
            self.assertTrue(math.isfinite(value))
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
            self.assertIsNotNone(item)
            self.check_finite(item)

    def check_plan(self, plan):
        """The fields of one plan's JSON, with their types, and what must add up."""
        for field, kind in PLAN_FIELDS.items():
            self.assertIn(field, plan)
            value = plan[field]
            if kind == FLAG:
                self.assertIsInstance(value, bool, field)
            elif kind == TEXT:
                self.assertIsInstance(value, str, field)
            elif kind == COUNT:
                self.assertIs(type(value), int, field)
            elif kind == NUMBER:
                self.assertIn(type(value), (int, float), field)
            else:
                self.assertIsInstance(value, kind, field)
        for field in MEMORY_FIELDS:
            self.assertGreaterEqual(plan["memory_bytes"][field], 0, field)
        self.assertEqual(list(plan["breakdown_s"]), BREAKDOWN_FIELDS)
        for field, seconds in plan["breakdown_s"].items():
            self.assertGreaterEqual(seconds, -1e-12, field)
        self.assertGreater(plan["step_time_s"], 0)
        step = plan["step_time_s"]
        self.assertAlmostEqual(sum(plan["breakdown_s"].values()) / step, 1, delta=1e-9)
        self.assertLessEqual(plan["mfu"], plan["hfu"] * (1 + 1e-12))
        self.assertTrue(0 < plan["mfu"] < 1, plan["mfu"])
        self.assertEqual(sorted(plan["order"]), ["cp", "dp", "ep", "pp", "tp"])
        self.assertEqual(len(plan["stage_layers"]), plan["pp"] * plan["interleave"])

    def without_clock(self, value):
        """The same JSON without the wall-clock fields, the only ones that two runs may differ in."""
        if isinstance(value, dict):
            return {k: self.without_clock(v) for k, v in value.items() if k not in ("wall_s", "search_s")}
        if isinstance(value, list):
            return [self.without_clock(item) for item in value]
        return value

    def refused(self, *arguments, code=2, says=(), timeout=60):
        """A run that must end with `code` and one line on stderr, and leave nothing behind."""
        before = sorted(self.folder.rglob("*"))
        result = self.orrery(*arguments, timeout=timeout)
        lines = result.stderr.splitlines()
        self.assertEqual(result.returncode, code, f"orrery {arguments}: {result.stdout}{result.stderr}")
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("orrery: "), lines[0])
        self.assertLess(len(lines[0]), 2000)
        self.assertEqual(result.stdout, "")
        self.assertEqual(sorted(self.folder.rglob("*")), before)
        for word in (says,) if isinstance(says, str) else says:
            self.assertIn(word, lines[0])
        return lines[0]


def small_gpt2():
    """Options of a search that is over at once: 2 layers' worth of choices on one node."""
    return ["gpt2", "dgx-a100", "--gpus", "4", "--global-batch", "8", "--seq-len", "128", "--tp", "2"]
