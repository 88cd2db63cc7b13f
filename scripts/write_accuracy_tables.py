#!/usr/bin/env python3
"""Writes the tables by source of docs/accuracy.md anew.

    orrery validate --published TABLES… --json steps.json
    build/release/bin/fit_factors TABLES… > fit.log
    scripts/write_accuracy_tables.py steps.json fit.log docs/accuracy.md

Three tables, each told by its header: of the rows in the fit, of sources left out, and of memory, whose column "before" stays.
The sentences around them are yours.
"""
import json
import pathlib
import re
import sys

LEFT_OUT = re.compile(r"left out: (\S+)\s+(\d+) rows mean\s+([\d.]+)% median\s+([\d.]+)% bias\s+([+-][\d.]+)% \|\s+(\d+) cells mean\s+"
                      r"([\d.]+)% median\s+[\d.]+% \| coverage\s+(\d+)% high/low ([\d.]+)")


def percent(value, digits=1, sign=""):
    return f"{100 * value:{sign}.{digits}f}%"


def row(*cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def replaced(page, header, rows):
    """The page with these rows in place of those under the one header that begins so."""
    if (found := page.count("\n" + header)) != 1:
        sys.exit(f"write_accuracy_tables.py: {found} tables begin with '{header}' (expected one)")
    begin = page.index("\n" + header) + 1
    end = page.index("\n\n", begin)
    head = page[begin:end].split("\n")[:2]
    return page[:begin] + "\n".join(head + rows(page[begin:end].split("\n")[2:])) + page[end:]


def steps_table(answer):
    def figures(name, one):
        return row(name, one["rows"], one["skipped"], *(percent(one[key]) for key in ("mape", "median_ape", "max_ape", "bias")))

    sources = sorted((one["mape"], name) for name, one in answer["sources"].items() if one["rows"] > 0)
    return [figures(name, answer["sources"][name]) for _, name in sources] + [figures("all", answer["all"])]


def memory_table(answer, old):
    before = {cells[1].strip(): cells[5].strip() for cells in (line.split("|") for line in old)}

    def figures(name, kind, one):
        return row(name, kind, one["rows"], one["skipped"], before.get(name, ""), percent(one["mape"]), percent(one["median_ape"]),
                   percent(one["max_ape"], 0), percent(one["bias"], sign="+"))

    of_sources = [figures(name, one.get("kind", ""), one) for name, one in answer["memory"]["sources"].items()]
    return of_sources + [figures("all", "", answer["memory"]["all"])]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    answer = json.loads(pathlib.Path(sys.argv[1]).read_text())
    left_out = [row(*found) for found in LEFT_OUT.findall(pathlib.Path(sys.argv[2]).read_text())]
    if not left_out:
        sys.exit(f"write_accuracy_tables.py: {sys.argv[2]} holds no line 'left out: SOURCE …' (expected fit_factors' output)")
    path = pathlib.Path(sys.argv[3])
    page = path.read_text()
    page = replaced(page, "| source | rows | skipped | mean error |", lambda _: steps_table(answer))
    page = replaced(page, "| source | rows | mean | median | bias | cells |", lambda _: left_out)
    page = replaced(page, "| source | kind | rows | skipped | before |", lambda old: memory_table(answer, old))
    path.write_text(page)


if __name__ == "__main__":
    main()
