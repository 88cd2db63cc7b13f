"""What every notebook is like; that each runs is a test of its own (CMakeLists.txt)."""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

NOTEBOOKS = pathlib.Path(os.environ["ORRERY_SOURCE_DIR"]) / "notebooks"


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


class Form(unittest.TestCase):
    def setUp(self):
        self.paths = sorted(NOTEBOOKS.glob("*.ipynb"))
        self.assertTrue(self.paths)

    def test_outputs_are_stripped(self):
        for path in self.paths:
            for cell in cells_of(path):
                if cell["cell_type"] == "code":
                    self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None),
                                     f"jupyter nbconvert --clear-output --inplace {path.name}")

    def test_each_is_numbered_titled_and_has_exercises_with_checked_answers(self):
        for path in self.paths:
            cells = cells_of(path)
            text = ["".join(cell["source"]) for cell in cells]
            number = int(path.name[:2])
            self.assertTrue(text[0].startswith(f"# {number}. "), path.name)
            self.assertIn("45 minutes", text[0])
            exercises = set(re.findall(r"^\*\*(\d)\.\*\*", "\n".join(t for t, c in zip(text, cells) if c["cell_type"] == "markdown"), re.M))
            answers = [t for t, c in zip(text, cells) if "answer" in c["metadata"].get("tags", [])]
            self.assertGreaterEqual(len(exercises), 3, path.name)
            self.assertEqual(len(exercises), len(answers), path.name)
            for answer in answers:
                self.assertIn("assert", answer, path.name)
            self.assertTrue(any("plt.subplots" in t for t in text), path.name)

    def test_nothing_outside_the_repository_is_read(self):
        for path in self.paths:
            for cell in cells_of(path):
                self.assertNotRegex("".join(cell["source"]), r"\.\./\.\.|/work/|shared/", path.name)

    def test_without_the_module_they_say_in_one_sentence_what_to_do(self):
        script = ("import sys; sys.modules['orrery'] = None\n"
                  "import classroom")
        done = subprocess.run([sys.executable, "-B", "-c", script], cwd=NOTEBOOKS, capture_output=True, text=True, check=False,
                              env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^This notebook needs Orrery's Python module: run .* \(docs/python.md\)")
        self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
