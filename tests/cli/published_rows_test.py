"""`orrery plan` with everything pinned takes what `validate --published` predicts of a row (tests/evidence has all rows)."""
import os
import pathlib
import re
import unittest

from orrery_case import SOURCE, OrreryCase

PUBLISHED = pathlib.Path(os.environ.get("ORRERY_PUBLISHED", SOURCE / "../shared/published"))
RECORD = SOURCE / "tests/golden/published_tables.txt"
MOST_DEVICES = 64  # every plan is simulated


def blocks(text):
    """The fields of a textproto by name, messages with what is in them."""
    found = {}
    for name, inside in re.findall(r"^(\w+) \{\n(.*?)^\}", text, re.M | re.S):
        found[name] = inside
    return found


def values(block):
    found = {}
    for name, value in re.findall(r"^  (\w+): (.*)$", block, re.M):
        found.setdefault(name, []).append(value.strip('"'))
    return found


def digest(content):
    """FNV-1a, as tests/support/published.h has it."""
    value = 0xCBF29CE484222325
    for byte in content:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def recorded_steps():
    """The tables of steps as the goldens know them: one that is new or has changed decides nothing."""
    for line in RECORD.read_text().splitlines():
        if not line.startswith("#") and line.split()[1].startswith("steps/"):
            known, place = line.split()
            table = PUBLISHED / place
            if table.exists() and digest(table.read_bytes()) == known:
                yield table
            else:
                print(f"new: {place}")


class PublishedRows(OrreryCase):
    def setUp(self):
        super().setUp()
        if not PUBLISHED.exists():
            self.skipTest("no published tables here (ORRERY_PUBLISHED)")

    def options_of(self, plan):
        """What a user says to get this plan: files and pins."""
        parts = blocks(plan.read_text())
        files = []
        for name in ("workload", "cluster", "runtime"):
            file = self.folder / f"{name}.textproto"
            file.write_text(re.sub(r"^  ", "", parts[name], flags=re.M))
            files.append(file)
        training, choices = values(parts["training"]), values(parts["choices"])
        one = lambda found, name, otherwise="0": found.get(name, [otherwise])[0]
        options = [*files[:2], "--runtime", files[2]]
        for name in ("global_batch", "precision", "optimizer", "attention"):
            options += ["--" + name.replace("_", "-"), one(training, name)]
        if one(training, "seq_len") != "0":
            options += ["--seq-len", one(training, "seq_len")]
        if "lengths" in parts["training"]:
            file = self.folder / "lengths.txt"
            file.write_text("\n".join(re.findall(r"tokens: (\d+)", parts["training"])) + "\n")
            options += ["--lengths", file]
        for name in ("tp", "pp", "dp", "cp", "ep", "etp", "micro_batch", "schedule", "interleave", "zero"):
            options += ["--" + name.replace("_", "-"), one(choices, name)]
        modules = ",".join(choices.get("recompute_modules", []))
        options += ["--recompute", f"selective:{modules}" if modules else one(choices, "recompute")]
        sharded = int(one(choices, "zero")) > 0
        if sharded:
            everyone = int(one(choices, "dp")) * int(one(choices, "cp"))
            options += ["--shard-group", int(one(choices, "shard_group")) or everyone]
        if int(one(choices, "tp")) > 1:
            options += ["--sequence-parallel", "on" if one(choices, "sequence_parallel") == "true" else "off"]
        options += ["--overlap-experts", "on" if one(choices, "overlap_experts") == "true" else "off"]
        options += ["--overlap-grad-reduce", "on" if one(choices, "overlap_grad_reduce") == "true" else "off"]
        stages = int(one(choices, "pp")) * int(one(choices, "interleave"))
        if stages > 1:
            layers = int(re.search(r"^    layers: (\d+)$", parts["workload"], re.M).group(1))
            even = [layers // stages + (stage < layers % stages) for stage in range(stages)]
            options += ["--stage-layers", ",".join(map(str, choices.get("stage_layers", even)))]
        options += ["--order", ",".join(choices["order"])]
        bucket = float(one(values(parts["runtime"]), "bucket_bytes"))
        return options + ["--bucket-bytes", f"{bucket or 1e18:.0f}", "--top", 1]

    def test_a_row_of_each_source(self):
        seen = 0
        for table in recorded_steps():
            asked = self.orrery("validate", "--published", table, "--rows", self.folder / "rows", "--json", "-")
            if asked.returncode == 2:  # no row of it can be predicted
                self.assertIn("nothing could be compared", asked.stderr)
                continue
            rows = self.parse(asked.stdout)["rows"]
            # Replicas on devices of several kinds may share a batch unevenly, which no option pins.
            judged = [row for row in rows if "predicted_s" in row and row["fits"] and row["n_gpus"] <= MOST_DEVICES
                      and " + " not in row["gpu"]]
            if not judged:
                continue
            row = judged[len(judged) // 2]
            with self.subTest(row=f"{row['file']}:{row['line']}"):
                plan = self.folder / "rows" / f"{row['file']}-{row['line']}.textproto"
                answer = self.json("plan", *self.options_of(plan))
                self.assertEqual(answer["candidates"], 1)
                self.assertLess(abs(answer["plans"][0]["estimate_s"] / row["predicted_s"] - 1), 1e-3)
                seen += 1
        self.assertGreater(seen, 5)

    def test_a_runtime_from_a_file(self):
        file = self.folder / "mine.textproto"
        file.write_text('name: "mine"\nbased_on: "torchtitan"\nfused_elementwise: false\n')
        options = ["llama3-8b", "dgx-h100", "--gpus", 8, "--tp", 1, "--pp", 1, "--zero", 3, "--recompute", "full",
                   "--micro-batch", 1, "--global-batch", 8, "--top", 1]
        own = self.json("plan", *options, "--runtime", file)
        base = self.json("plan", *options, "--runtime", "torchtitan")
        self.assertEqual(own["runtime"], "mine")
        self.assertGreater(own["plans"][0]["estimate_s"], base["plans"][0]["estimate_s"])
        self.refused("plan", *options, "--runtime", self.folder / "none.textproto")

    def test_rows_as_if_of_another_runtime_or_cluster(self):
        table = self.folder / "own.csv"
        table.write_text(
            "source,framework,model,n_layers,hidden,n_heads,seq_len_tokens,gpu,n_gpus,gpus_per_node,precision,tp,pp,"
            "gbs_sequences,mbs_sequences,act_recompute,step_time_s,notes\n"
            "x,torchtitan,GPT,24,2048,16,2048,H100,16,8,bf16,1,1,64,1,full,1,compile\n"
            "x,nobody's,GPT,24,2048,16,2048,H100,16,8,bf16,1,1,64,1,full,1,\n"
            "x,nobody's,GPT,24,2048,16,2048,,16,8,bf16,1,1,64,1,full,1,\n"
            "x,nobody's,GPT,24,2048,16,2048,H100,16,8,bf16,3,1,64,1,full,1,\n")
        own = self.json("validate", "--published", table)
        self.assertEqual(own["all"]["asked"], 3)  # a row whose device has no name does not count
        self.assertAlmostEqual(own["all"]["answered"], 2 / 3)
        self.assertEqual(own["all"]["refused_by_memory"], 0)
        self.assertEqual(own["rows"][0]["runtime"], "torchtitan")
        self.assertIn("widens", own["rows"][1])
        as_default = self.json("validate", "--published", table, "--runtime", "default")
        self.assertEqual(as_default["rows"][0]["runtime"], own["rows"][1]["runtime"])
        self.assertEqual(as_default["rows"][1]["predicted_s"], own["rows"][1]["predicted_s"])
        self.assertEqual(as_default["rows"][0]["plan"], own["rows"][0]["plan"])
        elsewhere = self.json("validate", "--published", table, "--cluster", "a100-eth100")
        self.assertGreater(elsewhere["rows"][0]["predicted_s"], own["rows"][0]["predicted_s"])
        self.refused("validate", "--published", table, "--runtime", "nobodys")


if __name__ == "__main__":
    unittest.main()
