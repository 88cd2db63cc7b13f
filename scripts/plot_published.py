#!/usr/bin/env python3
"""Plots predicted against measured training steps.

    orrery validate --published TABLES… --json steps.json
    scripts/plot_published.py steps.json docs/plots

writes published_steps.{png,svg} (every row, by source) and published_errors.{png,svg} (the errors of each
source). Needs matplotlib: apt-get install python3-matplotlib.
"""
import json
import os
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot_published.py: matplotlib is missing: apt-get install python3-matplotlib")
matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "orrery"  # the same picture twice is the same file
import matplotlib.pyplot as plt


def save(figure, folder, name):
    figure.tight_layout()
    figure.savefig(os.path.join(folder, name + ".png"), dpi=110, metadata={"Software": None})
    figure.savefig(os.path.join(folder, name + ".svg"), metadata={"Date": None})
    plt.close(figure)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        result = json.load(file)
    folder = sys.argv[2]
    os.makedirs(folder, exist_ok=True)
    sources = {}
    for row in result["rows"]:
        if "relative_error" in row:
            sources.setdefault(row["file"], []).append(row)

    colours = plt.get_cmap("tab20").colors
    figure, axes = plt.subplots(figsize=(8, 7))
    low = min(row["measured_s"] for rows in sources.values() for row in rows) / 1.5
    high = max(row["measured_s"] for rows in sources.values() for row in rows) * 1.5
    axes.fill_between([low, high], [low * 0.9, high * 0.9], [low * 1.1, high * 1.1], color="0.9",
                      label="within 10%")
    axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
    for i, (name, rows) in enumerate(sorted(sources.items())):
        axes.scatter([row["measured_s"] for row in rows], [row["predicted_s"] for row in rows], s=7,
                     color=colours[i % len(colours)], label=f"{name} ({len(rows)})", linewidths=0)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high),
             xlabel="measured step, seconds", ylabel="predicted step, seconds")
    axes.legend(fontsize=7, loc="upper left")
    save(figure, folder, "published_steps")

    names = sorted(sources, reverse=True)
    figure, axes = plt.subplots(figsize=(8, 0.42 * len(names) + 1.2))
    errors = [[100 * row["relative_error"] for row in sources[name]] for name in names]
    axes.axvspan(-10, 10, color="0.9")
    axes.boxplot(errors, vert=False, widths=0.6, whis=(5, 95), showfliers=True,
                 flierprops={"markersize": 2}, medianprops={"color": "tab:red"})
    axes.set_yticks(range(1, len(names) + 1), [f"{name} ({len(sources[name])})" for name in names], fontsize=8)
    axes.set(xlabel="error of the predicted step, percent (boxes: quartiles; whiskers: 5% and 95%)",
             xlim=(-70, 70))
    save(figure, folder, "published_errors")


if __name__ == "__main__":
    main()
