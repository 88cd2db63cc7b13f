"""docs/options.md: every option of every verb, from the records that the command line is made of."""
import os
import re
import unittest

from orrery_case import SOURCE, OrreryCase, small_gpt2

PAGE = SOURCE / "docs" / "options.md"


class Options(OrreryCase):
    def test_the_page_is_what_the_program_says(self):
        page = self.done("options")
        if os.environ.get("ORRERY_UPDATE_GOLDEN") == "1":
            PAGE.write_text(page)
        self.assertEqual(page, PAGE.read_text(), "ORRERY_UPDATE_GOLDEN=1 writes the page")

    def sections(self):
        """The page's rows by verb and option: what the verb's help must hold, and no more."""
        found, groups = {}, {}
        verb = heading = None
        for line in PAGE.read_text().splitlines():
            if line.startswith("## "):
                verb = line.removeprefix("## orrery ") if line.startswith("## orrery ") else None
                heading = ""
            elif line.startswith("### "):
                heading = line
            elif verb and line.startswith("As of "):
                found.setdefault(verb, []).extend(groups[re.search(r"`orrery (\w+)`", line).group(1), heading])
            elif verb and (row := re.match(r"\| `(\S+)", line)):
                found.setdefault(verb, []).append(row.group(1).rstrip("`"))
                groups.setdefault((verb, heading), []).append(row.group(1).rstrip("`"))
        return found

    def test_every_verb_s_help_holds_what_the_page_holds(self):
        verbs = re.findall(r"^  ([\w-]+) ", self.done("--help").partition("Subcommands:")[2], re.M)
        self.assertEqual(sorted(self.sections()), sorted(verbs))
        for verb, options in self.sections().items():
            with self.subTest(verb):
                shown = re.findall(r"^  (--[\w-]+|[A-Z]+)\b", self.done(verb, "--help"), re.M)
                self.assertEqual(sorted(shown), sorted(options))

    def test_errors_have_flags_where_the_library_has_names(self):
        self.refused("plan", "gpt2", "dgx-a100", "--gpus", "8", "--sequence-parallel", "on", "--tp", "1",
                     says="--sequence-parallel on contradicts --tp 1")
        self.refused("plan", "gpt2", "dgx-a100", "--gpus", "8", "--micro-batch", "0",
                     says="--micro-batch 0 (expected a whole number from 1")
        self.refused("plan", "gpt2", "dgx-a100", "--gpus", "8", "--stage-layers", "6,-6", says="--stage-layers 6,-6")

    def test_what_is_not_to_be_varied(self):
        self.refused("whatif", *small_gpt2(), "--vary", "top=1,2", says="--vary top is unknown")


if __name__ == "__main__":
    unittest.main()
