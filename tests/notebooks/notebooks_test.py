"""Every notebook runs from its first cell to its last, and teaches what it says."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(os.environ["ORRERY_SOURCE_DIR"])
ORRERY = pathlib.Path(os.environ["ORRERY"])


class Notebooks(unittest.TestCase):
    def run_notebook(self, name):
        environment = {**os.environ, "PATH": f"{ORRERY.parent}:{os.environ['PATH']}"}
        result = subprocess.run([sys.executable, "-B", SOURCE / "notebooks/run.py", SOURCE / "notebooks" / name],
                                capture_output=True, text=True, timeout=300, env=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_all_are_run_here(self):
        self.assertEqual({p.name for p in (SOURCE / "notebooks").glob("*.ipynb")}, {"scaling.ipynb"})

    def test_scaling(self):
        printed = self.run_notebook("scaling.ipynb")
        lines = {line.split("  ")[0].strip(): line.split() for line in printed.splitlines() if line.strip()}
        share = lambda name: [float(x.rstrip("%")) for x in lines[name] if x.endswith("%")]
        formula, plain, chunked = share("(p-1)/m"), share("1f1b"), share("interleaved 2")
        for textbook, simulated, halved in zip(formula, plain, chunked):
            self.assertAlmostEqual(simulated / textbook, 1, delta=0.15)
            self.assertAlmostEqual(halved / simulated, 0.5, delta=0.1)
        # A server's step grows with the workers, a ring's hardly does.
        rows = [line.split() for line in printed.splitlines() if line.strip().endswith("ms") and line.count("ms") == 2]
        ring = [float(row[1]) for row in rows]
        server = [float(row[3]) for row in rows]
        self.assertLess(ring[-1] / ring[0], 1.3)
        self.assertGreater(server[-1] / server[0], 3)

    def test_outputs_are_kept_in_the_file(self):
        for path in (SOURCE / "notebooks").glob("*.ipynb"):
            notebook = json.loads(path.read_text(encoding="utf-8"))
            printing = [c for c in notebook["cells"] if c["cell_type"] == "code" and "print(" in "".join(c["source"])]
            self.assertTrue(printing)
            for cell in printing:
                self.assertTrue(cell["outputs"], "run notebooks/run.py --write")


if __name__ == "__main__":
    unittest.main()
