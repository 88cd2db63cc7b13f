"""The scripts that everybody starts with: what they say of a build that fails, and of programs that are too old."""
import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ.get("ORRERY_SOURCE_DIR", pathlib.Path(__file__).parents[2]))


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="orrery-scripts-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, text):
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def run_script(self, *words):
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        return subprocess.run([SOURCE / "scripts" / words[0], *words[1:]], capture_output=True, text=True, env=environment, timeout=60)

    def test_a_build_that_fails_says_all_of_the_error_and_has_its_code(self):
        self.program("cmake", "true")
        notes = "\n".join(f"a.cc:{line}: note: in what includes it" for line in range(60))
        (self.folder / "said").write_text(
            f"[1/9] Building a\nFAILED: a.o\ng++ a.cc\n{notes}\na.cc:61: error: the reason\n[2/9] Building b\nb.cc:1: warning: not this\n"
            "ninja: build stopped: subcommand failed.\n")
        self.program("ninja", f"cat {self.folder}/said; exit 7")
        result = self.run_script("build.sh", "release")
        self.assertEqual(7, result.returncode)
        self.assertIn("the reason", result.stderr)
        self.assertNotIn("not this", result.stderr)

    def test_a_configuration_that_fails_has_its_code(self):
        self.program("cmake", "echo no such library; exit 4")
        result = self.run_script("build.sh", "release")
        self.assertEqual((4, "no such library\n"), (result.returncode, result.stderr))

    def test_a_node_that_is_too_old_is_named_and_refused(self):
        self.program("dpkg-query", "echo install ok installed")
        for version, code in [("v16.20.0", 1), ("v9.1.0", 1), ("odd", 1), ("v18.0.0", 0), ("v20.20.2", 0)]:
            self.program("node", f"echo {version}")
            result = self.run_script("install.sh")
            self.assertEqual(code, result.returncode, version)
            self.assertEqual(code == 1, "and 18 or newer is needed" in result.stderr, result.stderr)

    def test_what_is_missing_is_installed_by_apt(self):
        self.program("dpkg-query", '[ "${@: -1}" = g++ ] || echo install ok installed')
        self.program("node", "echo v20.0.0")
        self.program("sudo", 'exec "$@"')
        self.program("apt-get", f'echo "$@" >>{self.folder}/asked')
        result = self.run_script("install.sh")
        self.assertEqual((0, "Installing with apt: g++\n"), (result.returncode, result.stdout), result.stderr)
        self.assertEqual("update\ninstall -y --no-install-recommends g++\n", (self.folder / "asked").read_text())

    def test_what_only_tests_need_is_not_installed_to_build(self):
        self.program("dpkg-query", '[ "${@: -1}" = chromium ] || echo install ok installed')
        self.program("node", "echo v9.0.0")
        result = self.run_script("install.sh", "build")
        self.assertEqual((0, "", ""), (result.returncode, result.stdout, result.stderr))


if __name__ == "__main__":
    unittest.main()
