"""What the notebooks share: the module `orrery`, figures for print, pictures of timelines.

    from classroom import np, orrery, pd, plt
"""
import pathlib
import sys

BUILDS = ("release", "dev")


def find_orrery():
    """The module that is installed, or else the one that this repository's CMake has built."""
    root = pathlib.Path(__file__).resolve().parent.parent
    sys.path += [str(root / "build" / build / "python") for build in BUILDS]
    try:
        import orrery
    except ImportError as error:
        raise SystemExit("This notebook needs Orrery's Python module: run `scripts/install.sh && scripts/build.sh release` "
                         f"in the repository once, and restart the kernel (docs/python.md). [{error}]") from None
    return orrery


orrery = find_orrery()
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

# Readable on paper, in grey as well: lines differ in style and marker besides.
plt.rcParams.update({
    "figure.figsize": (6.3, 3.5), "figure.constrained_layout.use": True, "font.size": 9, "axes.grid": True,
    "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "lines.markersize": 4, "figure.dpi": 90, "savefig.dpi": 200,
    "axes.prop_cycle": plt.cycler(color=["#1f4e79", "#c55a11", "#548235", "#7f6000", "#7030a0", "#595959"],
                                  marker=list("osD^vx"), linestyle=["-", "--", "-.", ":", "-", "--"]),
})
pd.set_option("display.precision", 3)
try:
    from matplotlib_inline.backend_inline import set_matplotlib_formats

    if "ipykernel" in sys.modules:
        set_matplotlib_formats("retina")  # nbconvert 6.5 cannot put SVG into HTML
except ImportError:
    pass

SHADES = {"forward": "#9dc3e6", "backward": "#f4b183", "backward_input": "#f4b183", "backward_weight": "#a9d18e",
          "recompute": "#ffe699", "optimizer": "#bfbfbf"}


def powers(axes, ticks, which="x"):
    """A logarithmic axis that says the numbers themselves."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log", base=2)
    axis.set_major_locator(matplotlib.ticker.FixedLocator(list(ticks)))
    axis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(matplotlib.ticker.NullLocator())


def stacked(axes, xs, parts, unit=1.0):
    """Bars of what adds up, one for each of `xs`; `parts`: name to values."""
    hatches = ["", "///", "...", "xxx", "\\\\\\", "ooo"]
    bottom = np.zeros(len(xs))
    places = np.arange(len(xs))
    for i, (name, values) in enumerate(parts.items()):
        values = np.asarray(values, dtype=float) * unit
        axes.bar(places, values, 0.7, bottom=bottom, label=name, hatch=hatches[i % 6], edgecolor="white",
                 color=plt.rcParams["axes.prop_cycle"].by_key()["color"][i % 6])
        bottom += values
    axes.set_xticks(places, [str(x) for x in xs])
    axes.legend(fontsize=8)


def pipeline_picture(axes, simulation, title="", numbers=True):
    """What each stage of a pipeline computes when: one row a stage, a number a micro-batch."""
    frame = simulation.timeline.frame()
    frame = frame[(frame.stream == "compute") & (frame.step == 0)]
    frame = frame[frame["rank"].isin(frame.groupby("stage")["rank"].min())]
    for what, colour in SHADES.items():
        for stage, events in frame[frame.what == what].groupby("stage"):
            bars = list(zip(events.start_s, events.end_s - events.start_s))
            axes.broken_barh(bars, (stage - 0.4, 0.8), facecolors=colour, edgecolors="white", linewidth=0.3)
    if numbers:
        passes = frame[(frame.micro_batch >= 0) & (frame.what == "forward")].groupby(["stage", "micro_batch"])
        for (stage, batch), events in passes:
            axes.text(events.start_s.min(), stage, f" {batch}", fontsize=5, va="center", clip_on=True)
    axes.set_ylim(frame.stage.max() + 0.6, -0.6)
    axes.set_yticks(range(frame.stage.max() + 1))
    axes.set_ylabel("stage")
    axes.set_title(title, fontsize=9, loc="left")
    axes.grid(False)
