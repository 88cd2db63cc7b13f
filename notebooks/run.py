#!/usr/bin/env python3
"""Runs a notebook's code cells in order without Jupyter, and with --write keeps what they print and draw in it.

    notebooks/run.py [--write] NOTEBOOK.ipynb…        (orrery in PATH; plots need Debian's python3-matplotlib)

Exit code 1 when a cell raises. Jupyter opens the same files.
"""
import base64
import contextlib
import io
import json
import os
import sys


def figures():
    """PNG of every open matplotlib figure, which are closed; none where matplotlib was not imported."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    pictures = []
    for number in pyplot.get_fignums():
        buffer = io.BytesIO()
        pyplot.figure(number).savefig(buffer, format="png", dpi=72, metadata={"Software": None})
        pictures.append(base64.b64encode(buffer.getvalue()).decode())
    pyplot.close("all")
    return pictures


def run(path, write):
    with open(path, encoding="utf-8") as file:
        notebook = json.load(file)
    names = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        count += 1
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("".join(cell["source"]), f"{path}, cell {count}", "exec"), names)
        text = printed.getvalue()
        cell["execution_count"] = count
        cell["outputs"] = []
        if text:
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": text.splitlines(True)})
        for picture in figures():
            cell["outputs"].append({"output_type": "display_data", "metadata": {},
                                    "data": {"image/png": picture, "text/plain": ["<Figure>"]}})
        if not write:
            sys.stdout.write(text)
    if write:
        temporary = path + ".tmp"
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(notebook, file, indent=1, ensure_ascii=False)
            file.write("\n")
        os.replace(temporary, path)


os.environ.setdefault("MPLBACKEND", "Agg")
arguments = sys.argv[1:]
for notebook_path in [a for a in arguments if a != "--write"]:
    run(notebook_path, "--write" in arguments)
