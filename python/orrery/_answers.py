"""What the verbs return: values with names, as pandas frames where they are tables, and as HTML in Jupyter."""
from __future__ import annotations

import html
import json
import os
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from . import _native

if TYPE_CHECKING:
    import numpy
    import pandas


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.4g}"
    return html.escape(str(value))


def _table(rows: Sequence[tuple[Any, ...]], head: tuple[str, ...] = ()) -> str:
    lines = ["<table>"]
    if head:
        lines.append("<tr>" + "".join(f"<th>{html.escape(name)}</th>" for name in head) + "</tr>")
    lines += ["<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows]
    return "".join(lines) + "</table>"


def _frame(rows: list[dict[str, Any]]) -> pandas.DataFrame:
    """Rows without what is a table itself."""
    import pandas

    return pandas.DataFrame([{k: v for k, v in row.items() if not isinstance(v, (dict, list))} for row in rows])


class Answer:
    """An answer: the fields of the command line's --json as attributes and in `json`, in SI units as they say.

    `answer.step_time_s` and `answer["step_time_s"]` are the same; `_s` seconds, `_bytes` bytes, `_flops`
    floating-point operations, `_j` joules, `_usd` US dollars; what has no unit is a count or a share of 1.
    """

    _shown: tuple[str, ...] = ()

    def __init__(self, fields: str | dict[str, Any]):
        self.json: dict[str, Any] = json.loads(fields) if isinstance(fields, str) else fields

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "json" or name not in self.json:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return self.json[name]

    def __getitem__(self, name: str) -> Any:
        return self.json[name]

    def __contains__(self, name: str) -> bool:
        return name in self.json

    def __dir__(self) -> Iterator[str]:
        return iter([*super().__dir__(), *self.json])

    def __repr__(self) -> str:
        shown = [name for name in self._shown if name in self.json]
        return f"{type(self).__name__}({', '.join(f'{n}={_cell(self.json[n])}' for n in shown)})"

    def _repr_html_(self) -> str:
        names = [n for n in self._shown or self.json if not isinstance(self.json.get(n), (dict, list, type(None)))]
        return f"<b>{type(self).__name__}</b>" + _table([(name, self.json[name]) for name in names])


class Description(Answer):
    """What a workload is: parameters, FLOPs and bytes of one sample (a sequence, an image).

    parameters, active_parameters, weight_bytes, forward_flops (2 a multiply-add), model_flops (trained: three
    times those), output_bytes, layers (their number), parts (of like layers), operators (by kind), assumed.
    """

    _shown = ("workload", "parameters", "active_parameters", "weight_bytes", "forward_flops", "model_flops")
    parameters: int
    active_parameters: int
    weight_bytes: float
    forward_flops: float
    model_flops: float
    output_bytes: float
    assumed: list[str]

    def frame(self, of: str = "parts") -> pandas.DataFrame:
        """A row for each of the `parts` or the `operators`: count, parameters, forward_flops, output_bytes."""
        return _frame(self.json[of])


class Plan(Answer):
    """One way to train: degrees, schedule, sharding, and what it comes to.

    step_time_s, tokens_per_s, samples_per_s, model_flops (of a step), model_tflops_per_gpu, mfu and hfu (shares of
    the peak), memory_bytes (total, weights, gradients, optimizer, activations, buffers, capacity of the fullest
    device), breakdown_s (of the step of the busiest rank), busy_s (by kind), step_time_low_s and step_time_high_s
    (their 90% interval), estimate_s (closed form). Before it is simulated step_time_s is the estimate.
    """

    _shown = ("tp", "pp", "dp", "cp", "ep", "micro_batch", "schedule", "zero", "recompute", "step_time_s", "mfu")
    step_time_s: float
    tokens_per_s: float
    samples_per_s: float
    model_flops: float
    model_tflops_per_gpu: float
    mfu: float
    hfu: float
    memory_bytes: dict[str, float]
    breakdown_s: dict[str, float]
    busy_s: dict[str, float]
    step_time_low_s: float
    step_time_high_s: float
    estimate_s: float

    def __init__(self, native: _native.Plan, fields: str | dict[str, Any] | None = None):
        super().__init__(native.json() if fields is None else fields)
        self._native = native

    @property
    def words(self) -> str:
        """What distinguishes it, for people: "TP 8 x PP 4 x DP 32, micro-batch 1, 1f1b"."""
        return self._native.words()

    @property
    def job(self) -> dict[str, Any]:
        """What is trained, on what: workload, parameters, cluster, devices, nodes, runtime, training."""
        return json.loads(self._native.job())

    @property
    def micro_batches(self) -> int:
        """Of one replica in a step."""
        return self._native.micro_batches()

    def save(self, file: str | os.PathLike[str]) -> None:
        """As a self-contained file, which `orrery simulate`, `run` and `load_plan` read."""
        self._native.save(os.fspath(file))

    def export(self, target: str, all_ranks: bool = False) -> dict[str, str | bytes]:
        """The files of another system by name: megatron, deepspeed, torchtitan, horovod, chakra, simgrid, slurm or
        kubernetes."""
        return dict(self._native.export(target, all_ranks))

    def __repr__(self) -> str:
        return f"Plan({self.words}; {self.step_time_s:.4g} s a step)"

    def _repr_html_(self) -> str:
        memory = self.memory_bytes
        rows: list[tuple[Any, ...]] = [("step", f"{self.step_time_s:.4g} s")]
        if "step_time_low_s" in self:
            rows.append(("90% interval", f"{self.step_time_low_s:.4g} to {self.step_time_high_s:.4g} s"))
        rows += [("model FLOPs utilisation", f"{self.mfu:.1%}"),
                 ("memory", f"{memory['total'] / 2**30:.1f} of {memory['capacity'] / 2**30:.1f} GiB")]
        rows += [(f"of the step: {part}", f"{seconds / self.step_time_s:.1%}")
                 for part, seconds in self.breakdown_s.items() if seconds > 0.0005 * self.step_time_s]
        return f"<b>{html.escape(self.words)}</b>{_table(rows)}"


class Search(Answer):
    """What a search found: `plans`, best first, and `why` the first is.

    candidates, feasible and simulated (counts), proven, gap (share of the best step that is not excluded),
    search_s, sensitivities, systems, pareto, warnings; `ignored`: what was imported and says nothing of a plan;
    `assumed`: what it does not say.
    """

    _shown = ("workload", "cluster", "devices", "candidates", "feasible", "simulated", "proven", "gap")
    why: str
    candidates: int
    proven: bool
    gap: float
    search_s: float

    def __init__(self, fields: str, natives: list[_native.Plan], ignored: list[str], assumed: list[str]):
        super().__init__(fields)
        self.plans: list[Plan] = [Plan(n, f) for n, f in zip(natives, self.json["plans"])]
        self.ignored = ignored
        self.assumed = assumed

    @property
    def best(self) -> Plan:
        return self.plans[0]

    def frame(self) -> pandas.DataFrame:
        """A row a plan, best first."""
        return _frame(self.json["plans"])

    def _repr_html_(self) -> str:
        rows = [(i + 1, p.words, f"{p.step_time_s:.4g} s", f"{p.mfu:.1%}",
                 f"{p.memory_bytes['total'] / 2**30:.1f} GiB") for i, p in enumerate(self.plans)]
        return _table(rows, ("", "plan", "step", "MFU", "memory")) + f"<p>{html.escape(self.why)}</p>"


class Timeline:
    """When each instruction of each simulated rank ran, as NumPy columns of equal length.

    rank, step, instruction, stage (of the pipeline), micro_batch (-1: none), start_s, end_s (seconds from the
    start), flops, bytes. `kind` ("forward", "backward", "tensor_comm", …), `what` ("forward", "backward_weight",
    "all_reduce", "exchange", …) and `stream` are arrays of strings.
    """

    rank: numpy.ndarray
    step: numpy.ndarray
    instruction: numpy.ndarray
    stage: numpy.ndarray
    micro_batch: numpy.ndarray
    kind: numpy.ndarray
    what: numpy.ndarray
    stream: numpy.ndarray
    start_s: numpy.ndarray
    end_s: numpy.ndarray
    flops: numpy.ndarray
    bytes: numpy.ndarray

    def __init__(self, native: _native.Simulated):
        self._native = native
        self._columns = native.columns()

    def __getattr__(self, name: str) -> numpy.ndarray:
        columns = self.__dict__.get("_columns", {})
        if name not in columns:
            raise AttributeError(f"Timeline has no {name}")
        column = columns[name]
        if isinstance(column, tuple):
            import numpy

            column = numpy.array(column[1], dtype=object)[column[0]] if column[1] else column[0].astype(object)
        self.__dict__[name] = column
        return column

    def __len__(self) -> int:
        return len(self._columns["rank"])

    def labels(self) -> list[str]:
        """Of each event, as in a trace: "forward mb3 layers 4-7"."""
        return self._native.labels()

    def frame(self) -> pandas.DataFrame:
        """The columns; words as categories."""
        import pandas

        return pandas.DataFrame({
            name: pandas.Categorical.from_codes(*column) if isinstance(column, tuple) else column
            for name, column in self._columns.items()})

    def __repr__(self) -> str:
        return f"Timeline({len(self)} events)"


class Simulation(Plan):
    """A plan simulated: what Plan has, from virtual time, with links, ranks and a timeline.

    ranks, simulated_ranks, events, step_ends_s (of each simulated step, from the start), links (busiest first:
    name, utilization, bytes), energy_j (of a step), wall_s (that the simulation took), warnings.
    """

    ranks: int
    simulated_ranks: int
    step_ends_s: list[float]
    wall_s: float

    def __init__(self, plan: _native.Plan, native: _native.Simulated, timeline: bool):
        super().__init__(plan, native.json())
        self._simulated = native
        self._timeline = timeline

    @property
    def energy_j(self) -> float:
        """Joules of one step, of all devices and their nodes; 0 where the cluster states no power."""
        return self._simulated.energy_j()

    @property
    def timeline(self) -> Timeline:
        self._need_timeline()
        if "_events" not in self.__dict__:
            self._events = Timeline(self._simulated)
        return self._events

    def _need_timeline(self) -> None:
        if not self._timeline:
            raise ValueError("simulated with timeline=False")

    def links_frame(self) -> pandas.DataFrame:
        return _frame(self.json["links"])

    def trace(self, file: str | os.PathLike[str]) -> None:
        """Written for https://ui.perfetto.dev."""
        self._need_timeline()
        with open(file, "w", encoding="utf-8") as out:
            out.write(self._simulated.chrome_trace())


class Collective(Answer):
    """Times of a collective operation by size, as nccl-tests counts them.

    `frame()`: bytes, time_s, algbw_bytes_per_s, busbw_bytes_per_s, algorithm, protocol. The same as arrays:
    `bytes`, `time_s`, `busbw_bytes_per_s`.
    """

    _shown = ("op", "cluster", "devices", "nodes", "detail")

    def _column(self, name: str) -> numpy.ndarray:
        import numpy

        return numpy.array([row[name] for row in self.json["results"]])

    @property
    def bytes(self) -> numpy.ndarray:
        return self._column("bytes")

    @property
    def time_s(self) -> numpy.ndarray:
        return self._column("time_s")

    @property
    def busbw_bytes_per_s(self) -> numpy.ndarray:
        return self._column("busbw_bytes_per_s")

    def frame(self) -> pandas.DataFrame:
        return _frame(self.json["results"])

    def _repr_html_(self) -> str:
        rows = [(f"{r['bytes']:,.0f}", f"{r['time_s'] * 1e6:,.1f} µs", f"{r['busbw_bytes_per_s'] / 1e9:.2f} GB/s",
                 r["algorithm"], r["protocol"]) for r in self.json["results"]]
        title = f"<b>{html.escape(self.op)} over {self.devices} devices of {html.escape(self.cluster)}</b>"
        return title + _table(rows, ("bytes", "time", "bus bandwidth", "algorithm", "protocol"))


class Whatif(Answer):
    """The best plan of each combination, and what training to the goal takes there.

    points (each with `vary`, `plan`, step_time_s and, with a goal, time_to_train_s, device_hours, cost_usd,
    energy_j, or `refusal`), cheapest, fastest (indices, None where no point meets the limits), front (indices).
    `refusal`: why no point answers what was asked, and how near the nearest comes; "" where one does.
    """

    _shown = ("cheapest", "fastest", "search_s")

    def __init__(self, fields: str, refusal: str, csv: str):
        super().__init__(fields)
        self.refusal = refusal
        self.csv = csv

    def frame(self) -> pandas.DataFrame:
        """A row a point: what was varied, then its figures."""
        rows = []
        for point in self.json["points"]:
            whole: dict[str, Any] = next((v for k, v in point.items() if k.startswith("per_1e9_")), {})
            rows.append({**point["vary"], **{k: v for k, v in point.items() if k != "vary"}, **whole})
        return _frame(rows)

    def _repr_html_(self) -> str:
        keys = list(self.json["varied"])
        rows = []
        for i, point in enumerate(self.json["points"]):
            note = " ".join(n for n in ("cheapest", "fastest") if self.json[n] == i)
            figures = (f"{point['step_time_s']:.4g} s", point["plan"]) if "plan" in point else ("", point["refusal"])
            rows.append((*[point["vary"][key] for key in keys], *figures, note))
        return _table(rows, (*keys, "step", "plan", "")) + f"<p>{html.escape(self.refusal)}</p>"


class Comparison(Answer):
    """Ways of data-parallel training side by side.

    sizes (devices, ascending), strategies (each with `sizes`: step_time_s, samples_per_s, efficiency (share of so
    many devices alone), compute_s, exposed_s, waiting_s, wire_bytes (that a device sends), memory_bytes, or
    `refusal`; and, under trouble, `troubled` and `under_trouble`), best (name, None where none fits), verdict.
    """

    _shown = ("workload", "cluster", "devices", "nodes", "best")
    sizes: list[int]
    strategies: list[dict[str, Any]]
    verdict: str

    @property
    def best(self) -> str | None:
        return self.json.get("best")

    def frame(self, of: str = "strategies") -> pandas.DataFrame:
        """A row a strategy on all devices, with what it keeps `under_trouble`; or a row a strategy and size."""
        if of not in ("strategies", "sizes"):
            raise ValueError(f"a frame of {of}: expected strategies or sizes")
        rows = []
        for one in self.strategies:
            head = {name: one[name] for name in ("strategy", "meeting", "exact", "elastic")}
            if of == "sizes":
                rows += [{**head, **size} for size in one["sizes"]]
                continue
            trouble = {f"trouble_{name}": value for name, value in one.get("under_trouble", {}).items()}
            rows.append({**head, **one["sizes"][-1], **trouble})
        return _frame(rows)

    def _repr_html_(self) -> str:
        rows = []
        for one in self.strategies:
            whole = one["sizes"][-1]
            if "refusal" in whole:
                rows.append((one["strategy"], whole["refusal"], "", "", "", ""))
                continue
            trouble = one.get("under_trouble")
            rows.append((one["strategy"], f"{whole['samples_per_s']:,.1f}", f"{whole['efficiency']:.1%}",
                         f"{whole['exposed_s'] * 1e3:.2f} ms", f"{whole['memory_bytes'] / 2**30:.1f} GiB",
                         f"{trouble['samples_per_s']:,.1f}" if trouble else ""))
        head = ("strategy", "samples/s", "efficiency", "exposed", "memory", "samples/s under trouble")
        return _table(rows, head) + f"<p>{html.escape(self.verdict)}</p>"


class Goodput(Answer):
    """A whole run on devices that fail.

    goodput (share of the time that counts), time_to_train_s (mean, p5, p50, p95), ideal_s, interruptions, mtti_s,
    checkpoint_every_steps, checkpoint_s, lost_s (by cause), closed_form (goodput, time_to_train_s,
    daly_interval_s, young_interval_s), alternatives.
    """

    _shown = ("goodput", "steps", "step_time_s", "ideal_s", "mtti_s", "checkpoint_every_steps", "checkpoint_s")
    goodput: float
    steps: int
    step_time_s: float
    ideal_s: float
    mtti_s: float
    checkpoint_every_steps: int
    lost_s: dict[str, float]

    def frame(self) -> pandas.DataFrame:
        """What else it could be: a row an alternative."""
        return _frame(self.json["alternatives"])


class Validation(Answer):
    """Predicted beside measured: predicted_step_time_s, measured_step_time_s, relative_error, by_kind, memory."""

    _shown = ("predicted_step_time_s", "measured_step_time_s", "relative_error")
    predicted_step_time_s: float
    measured_step_time_s: float
    relative_error: float

    def frame(self) -> pandas.DataFrame:
        """A row a kind of instruction, in seconds of a step; of `against`, a row a measured step."""
        return _frame(self.json["by_kind"] or self.json.get("rows", []))


class Catalog(Answer):
    """What is known by name: workloads, clusters, networks, devices, links, runtimes."""

    def frame(self, of: str = "workloads") -> pandas.DataFrame:
        return _frame(self.json[of])
