"""`cmake --install` and the Debian package: what lies where, and that it works from there."""
import os
import pathlib
import re
import shutil
import subprocess
import unittest

from orrery_case import ORRERY, OrreryCase

BUILD = pathlib.Path(ORRERY).parent.parent


class Install(OrreryCase):
    def command(self, *words, **options):
        result = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=300, cwd=self.folder,
                                env=self.environment, **options)
        self.assertEqual(0, result.returncode, f"{words}: {result.stdout}{result.stderr}")
        return result.stdout

    def verbs(self):
        return re.findall(r"^  ([\w-]+) ", self.done("--help").partition("Subcommands:")[2], re.M)

    def flags(self, verb):
        return set(re.findall(r"^  (--[\w-]+)", self.done(verb, "--help"), re.M))

    def share(self):
        self.done("share", self.folder / "share")
        return self.folder / "share"

    def test_pages_and_completions_hold_every_verb_and_option(self):
        share = self.share()
        texts = {shell: (share / file).read_text() for shell, file in {
            "bash": "bash-completion/completions/orrery", "zsh": "zsh/site-functions/_orrery",
            "fish": "fish/vendor_completions.d/orrery.fish"}.items()}
        overview = (share / "man/man1/orrery.1").read_text()
        for verb in self.verbs():
            with self.subTest(verb):
                page = (share / f"man/man1/orrery-{verb}.1").read_text().replace("\\-", "-")
                self.assertIn("orrery\\-" + verb.replace("-", "\\-"), overview)
                for flag in self.flags(verb):
                    self.assertIn(flag, page)
                    self.assertIn(flag, texts["bash"])
                    self.assertIn(flag, texts["zsh"])
                    self.assertIn(f"'__fish_seen_subcommand_from {verb}' -l {flag[2:]}", texts["fish"])
        for shell in texts:
            self.assertIn("llama3-8b", texts[shell], shell)

    def test_pages_have_no_fault_that_groff_knows(self):
        groff = shutil.which("groff")
        if not groff:
            self.skipTest("no groff")
        for page in sorted((self.share() / "man/man1").iterdir()):
            with self.subTest(page.name):
                done = subprocess.run([groff, "-Kutf8", "-man", "-ww", "-Tutf8", "-P-cbou", "-rLL=80n", page], capture_output=True, text=True)
                self.assertEqual("", done.stderr)
                self.assertIn("SYNOPSIS", done.stdout)

    def test_bash_completes_verbs_options_and_values(self):
        script = self.share() / "bash-completion/completions/orrery"

        def completed(*words):
            quoted = " ".join(f"'{word}'" for word in words)
            return self.command("bash", "-c", f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
                                              "_orrery; printf '%s\\n' \"${COMPREPLY[@]}\"").split()

        self.assertEqual(["plan"], completed("orrery", "pla"))
        self.assertEqual(["--schedule"], completed("orrery", "plan", "--sch"))
        self.assertEqual(["1f1b"], completed("orrery", "plan", "--schedule", "1"))
        self.assertEqual(["dgx-h100", "dgx-h200"], completed("orrery", "plan", "gpt2", "dgx-h"))
        self.assertEqual([], completed("orrery", "plan", "--seq-len", "no-such-thing"))
        (self.folder / "my.plan").write_text("")
        self.assertEqual(["my.plan"], completed("orrery", "simulate", "my"))

    def test_zsh_and_fish_read_their_files(self):
        share = self.share()
        for shell, file in {"zsh": "zsh/site-functions/_orrery", "fish": "fish/vendor_completions.d/orrery.fish"}.items():
            if shutil.which(shell):
                self.command(shell, "-n", share / file)

    def check_tree(self, root):
        """An installed tree, from which a plan is made and simulated."""
        for file in ("bin/orrery", "share/man/man1/orrery.1", "share/man/man1/orrery-plan.1",
                     "share/bash-completion/completions/orrery", "share/zsh/site-functions/_orrery",
                     "share/fish/vendor_completions.d/orrery.fish"):
            self.assertTrue((root / file).is_file() or (root / (file + ".gz")).is_file(), file)
        for executor in BUILD.glob("bin/orrery-exec-*"):
            self.assertTrue(os.access(root / "bin" / executor.name, os.X_OK), executor.name)
        orrery = root / "bin/orrery"
        # Tensor and data parallelism share links, which is SimGrid's.
        self.command(orrery, "plan", "gpt2", "dgx-a100", "--gpus", "8", "--tp", "4", "--dp", "2", "--out", self.folder / "plan")
        self.assertIn("busiest links", self.command(orrery, "simulate", self.folder / "plan"))
        module = root / "lib/orrery/modules/liborrery-simgrid.so"
        module.rename(self.folder / "away.so")
        without = subprocess.run([orrery, "simulate", self.folder / "plan"], capture_output=True, text=True)
        (self.folder / "away.so").rename(module)
        self.assertNotEqual(0, without.returncode)
        self.assertIn("SimGrid cannot be loaded: liborrery-simgrid.so", without.stderr)

    def test_installs_what_it_needs(self):
        prefix = self.folder / "prefix"
        self.command("cmake", "--install", BUILD, "--prefix", prefix)
        self.check_tree(prefix)

    def test_the_debian_package_installs_and_goes_again(self):
        if not shutil.which("dpkg") or not shutil.which("dpkg-shlibdeps"):
            self.skipTest("no dpkg")
        out = self.folder / "out"
        self.command("cpack", "-G", "DEB", "--config", BUILD / "CPackConfig.cmake", "-B", out)
        package, = out.glob("*.deb")
        depends = self.command("dpkg-deb", "--field", package, "Depends")
        self.assertIn("libsimgrid3", depends)
        root = self.folder / "root"
        for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates"):
            (root / folder).mkdir(parents=True)
        (root / "var/lib/dpkg/status").write_text("")
        # Into a tree of its own, where what it depends on is not known.
        dpkg = ["dpkg", f"--root={root}", f"--log={self.folder}/dpkg.log", "--force-not-root", "--force-depends"]
        self.command(*dpkg, "--install", package)
        self.check_tree(root / "usr")
        self.command(*dpkg, "--remove", "orrery")
        left = [path for path in (root / "usr").rglob("*") if path.is_file()] if (root / "usr").exists() else []
        self.assertEqual([], left)


if __name__ == "__main__":
    unittest.main()
