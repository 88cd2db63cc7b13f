"""The verbs."""
from __future__ import annotations

import os
import pathlib
import shlex
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence

from . import _native
from ._answers import (Answer, Catalog, Collective, Comparison, Description, Goodput, Plan, Search, Simulation,
                       Validation, Whatif)
from ._errors import UserError

if TYPE_CHECKING:
    import pandas
    from typing_extensions import Unpack

    from ._options import PlanOptions

    Progress = Callable[[int, int], None]
    PathLike = str | os.PathLike[str]

__version__: str = _native.version()

# Before the first of the notebook's or test's own threads that matter: the server of simulations is a copy of the
# process as it is now.
_native.start()
_bin = pathlib.Path(__file__).parent / "bin"
if _bin.exists():
    _native.set_executor_folder(str(_bin.resolve()))

_records = {record["key"]: record for record in _native.request_options()}
_switches = {key for key, record in _records.items() if record["switch"]}


def options() -> pandas.DataFrame:
    """The options of `plan` and `whatif`: key, unit, help, fallback, range, group; whether `whatif` may vary it."""
    import pandas

    return pandas.DataFrame([r for r in _records.values() if not r["positional"]]).drop(columns="positional")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, (list, tuple)):
        return ",".join(_text(one) for one in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _values(given: Any) -> list[str]:
    """Those of something to go through, or a single one."""
    alone = isinstance(given, os.PathLike) or not isinstance(given, Iterable)
    return [_text(value) for value in ([given] if alone else given)]


def _files(given: Sequence[PathLike] | PathLike) -> list[str]:
    """One file, or several."""
    return [os.fspath(one) for one in ([given] if isinstance(given, (str, os.PathLike)) else given)]


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    """Options as the command line has them; None and a switch that is off are not given."""
    return {key: _text(value) for key, value in given.items()
            if value is not None and not (key in _switches and value is False)}


def catalog() -> Catalog:
    """Workloads, clusters, networks, devices, links and runtimes that are known by name."""
    return Catalog(_native.catalog())


def describe(workload: PathLike, seq_len: int | None = None, precision: str = "bf16") -> Description:
    """What a workload is: layers, FLOPs, bytes of one sample, and what was assumed.

    workload: a Hugging Face config.json, an .onnx file, a .textproto or a name of the catalog.
    seq_len: tokens a sample (None: the workload's own).
    """
    return Description(_native.describe(os.fspath(workload), seq_len or 0, precision))


def plan(workload: PathLike, cluster: PathLike, *, jobs: int = 0, pareto: bool = False,
         progress: Progress | None = None, **options: Unpack[PlanOptions]) -> Search:
    """The best ways to train `workload` on `cluster`, ranked, and why.

    options: those of `orrery plan`, each under its key (orrery.options() lists them): nodes, global_batch (samples a
    step), seq_len (tokens), precision, runtime, tp, pp, dp, zero, schedule, …; what is given is not searched.
    jobs: number of simulating processes (0: one per processor core); the answer does not depend on it.
    pareto: look for the whole front of step time, cost, energy and memory.
    progress: called with how many simulations have ended, of how many.
    Raises UserError, and NoAnswer where nothing fits.
    """
    found = _native.plan(os.fspath(workload), os.fspath(cluster), _texts(options), jobs, pareto, progress)
    return Search(*found)


def load_plan(file: PathLike) -> Plan:
    """A plan that `orrery plan --out` or Plan.save wrote; not simulated."""
    return Plan(_native.load_plan(os.fspath(file)))


def _native_plan(plan: Plan | PathLike) -> _native.Plan:
    return plan._native if isinstance(plan, Plan) else _native.load_plan(os.fspath(plan))


def simulate(plan: Plan | PathLike, *, fold: bool = True, detail: str = "flows", steps: int = 0,
             timeline: bool = True) -> Simulation:
    """A plan's step in virtual time.

    fold: one rank of each class of symmetric ranks; False: every rank.
    detail: of a collective, "flows" (one a link) or "messages" (step by step, every rank).
    steps: to simulate (0: what the steady state needs).
    timeline: keep when each instruction ran.
    Raises InternalError where the simulating process dies, NoAnswer where a route is dead.
    """
    native = _native_plan(plan)
    return Simulation(native, _native.simulate(native, fold, detail, steps, timeline), timeline)


def collective(op: str, cluster: PathLike, bytes: float | Iterable[float], *, nodes: int | str | None = None,
               gpus: int | None = None, algorithm: str = "auto", detail: str = "flows") -> Collective:
    """Times of one collective operation on a cluster, as nccl-tests measures it.

    op: all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather or scatter.
    bytes: sizes in bytes, as nccl-tests counts them. nodes: "3+1" of a cluster with two kinds.
    algorithm: auto (what the library would choose), ring, tree, nvls, nvls-tree, pairwise, …
    """
    sizes = [float(bytes)] if isinstance(bytes, (int, float)) else [float(size) for size in bytes]
    return Collective(_native.collective(op, os.fspath(cluster), sizes, None if nodes is None else str(nodes), gpus,
                                         algorithm, detail))


def whatif(workload: PathLike, cluster: PathLike = "", *, vary: Mapping[str, Any] | None = None,
           tokens: float | None = None, samples: float | None = None, deadline_days: float | None = None,
           budget_usd: float | None = None, jobs: int = 0, progress: Progress | None = None,
           **options: Unpack[PlanOptions]) -> Whatif:
    """A plan for each combination of varied options: time to train, cost, energy, and which stand out.

    vary: {"nodes": [8, 16], "device_memory": "1,2"}: options of `plan`, cluster, workload, or the hardware's keys;
    values one by one, one alone, or as the command line's text.
    tokens, samples: what is trained (None: figures per 1e9). deadline_days, budget_usd: limits.
    A point without a plan has a `refusal`; where no point answers what was asked, so has the answer.
    """
    limits = _native.WhatifLimits()
    limits.tokens, limits.samples = tokens, samples
    limits.deadline_days, limits.budget_usd = deadline_days, budget_usd
    varied = [(key, values if isinstance(values, str) else _values(values)) for key, values in (vary or {}).items()]
    return Whatif(*_native.whatif(os.fspath(workload), os.fspath(cluster), _texts(options), varied, limits, jobs,
                                  progress))


def compare(workload: PathLike, cluster: PathLike, *, strategies: Sequence[str] | str = (),
            trouble: Sequence[str] | str = (), nodes: int | str | None = None, gpus: int | None = None,
            runtime: PathLike | None = None, global_batch: int | str | None = None, seq_len: int | str | None = None,
            precision: str | None = None, optimizer: str | None = None, attention: str | None = None,
            micro_batch: int | None = None, horizon_s: float = 0, checkpoint_every_s: float = 600,
            restart_s: float = 60, replace_s: float = 300, stages: int = 0, seed: int = 1,
            jobs: int = 0) -> Comparison:
    """Ways of data-parallel training side by side on 1, 2, 4, … devices, also under trouble.

    strategies: names with settings behind colons ("horovod:cycle=5ms"), or "all"; (): the default ones.
    trouble: what is met on all devices: "slow-device=3:0.5", "dies=worker:7@600", … as `orrery compare --trouble`.
    global_batch: samples a step. seq_len: tokens a sample. horizon_s: seconds of training under trouble (0: by what
    happens). checkpoint_every_s, restart_s, replace_s: seconds. stages: of a pipeline over all devices, whose cuts are
    looked at too (0: none). seed: of what is drawn.
    jobs: simulations at a time (0: one per processor core); the answer does not depend on it.
    Raises UserError where the batch does not divide over the devices.
    """
    settings = _native.CompareSettings()
    settings.strategies = strategies if isinstance(strategies, str) else ",".join(strategies)
    settings.troubles = [trouble] if isinstance(trouble, str) else list(trouble)
    for name, value in (("horizon_s", horizon_s), ("checkpoint_every_s", checkpoint_every_s),
                        ("restart_s", restart_s), ("replace_s", replace_s), ("stages", stages), ("seed", seed), ("jobs", jobs)):
        setattr(settings, name, value)
    options = {"nodes": nodes, "gpus": gpus, "runtime": runtime, "global_batch": global_batch, "seq_len": seq_len,
               "precision": precision, "optimizer": optimizer, "attention": attention, "micro_batch": micro_batch}
    return Comparison(_native.compare(os.fspath(workload), os.fspath(cluster), _texts(options), settings))


def goodput(plan: Plan | PathLike, *, mtbf_device_hours: float, tokens: float | None = None,
            samples: float | None = None, steps: float | None = None, mtbf_node_hours: float | None = None,
            checkpoint_bandwidth_bytes_per_s: float | None = None, checkpoint_s: float | None = None,
            read_s: float | None = None, checkpoint_async: bool = False, snapshot_s: float | None = None,
            checkpoint_every: int | None = None, detect_s: float = 0, restart_s: float = 0, spares: int = 0,
            repair_hours: float | None = None, elastic: bool = False, runs: int = 200, seed: int = 1,
            jobs: int = 0) -> Goodput:
    """How long a whole run takes on devices that fail.

    tokens, samples or steps: the length of the run, one of them. mtbf_device_hours: mean time between failures of
    one device that interrupt the job; mtbf_node_hours: of a node besides. checkpoint_every: steps (None: those that
    lose least). checkpoint_s, read_s, snapshot_s, detect_s, restart_s: seconds. spares: nodes beside the plan's.
    repair_hours: until a failed node is back. elastic: go on with fewer replicas. runs: whole runs simulated.
    """
    request = _native.GoodputRequest(_native_plan(plan))
    length = _native.TrainingLength()
    length.tokens, length.samples, length.steps = tokens, samples, steps
    request.length = length
    for name, value in (
            ("mtbf_device_hours", mtbf_device_hours), ("mtbf_node_hours", mtbf_node_hours),
            ("checkpoint_bandwidth_bytes_per_s", checkpoint_bandwidth_bytes_per_s), ("checkpoint_s", checkpoint_s),
            ("read_s", read_s), ("checkpoint_async", checkpoint_async), ("snapshot_s", snapshot_s),
            ("checkpoint_every", checkpoint_every), ("detect_s", detect_s), ("restart_s", restart_s),
            ("spares", spares), ("repair_hours", repair_hours), ("elastic", elastic), ("runs", runs),
            ("seed", seed), ("jobs", jobs)):
        setattr(request, name, value)
    return Goodput(_native.goodput(request))


def _mpirun_words(given: str | None) -> list[str]:
    text = os.environ.get("ORRERY_MPIRUN_ARGS", "") if given is None else given
    try:
        return shlex.split(text)
    except ValueError:
        raise UserError(f"`mpirun_args` {text}: a quotation does not end") from None


def validate(plan: Plan | PathLike, *, steps: int = 10, backend: str = "auto", data: PathLike = "", mpi: str = "",
             mpirun_args: str | None = None, against: Sequence[PathLike] | PathLike = ()) -> Validation:
    """Predicted beside measured: trains the plan on the hosts that its cluster names, else on this machine, with the
    executor, under mpirun, and joins.

    steps: to train. backend: auto, mpi, nccl or cuda-mpi. data: a text (the GPL that every Debian carries).
    mpirun_args: further options for mpirun, quoted as for a shell (None: $ORRERY_MPIRUN_ARGS).
    against: a file, or files, of steps that somebody measured with other software; then nothing is run.
    """
    if against:
        return Validation(_native.against(_native_plan(plan), _files(against)))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "plan.textproto"
        _native_plan(plan).save(str(file))
        fields, forgotten = _native.validate(str(file), steps, backend, os.fspath(data), mpi,
                                              _mpirun_words(mpirun_args))
    if forgotten:
        warnings.warn(f"{forgotten}: this validation is not remembered", stacklevel=2)
    return Validation(fields)


def calibrate(cluster: PathLike = "", files: Sequence[PathLike] | PathLike = (), *, runtime: str = "",
              out: PathLike = "", host: PathLike = "", mpi: str = "", mpirun_args: str | None = None) -> Answer:
    """Measures, for later plans: this machine's cores, memory and links (half a minute), or those of hosts.

    cluster: without files, the file of a cluster whose hosts are measured under mpirun, into `out`. host: a calibrated
    file of one of them; then links alone are measured.
    files: learns instead what a file, or files, of measurements say of the cluster (docs/measurements.md).
    out: where the profile is written ("": where later plans find it).
    mpirun_args: further options for mpirun, quoted as for a shell (None: $ORRERY_MPIRUN_ARGS).
    """
    if files:
        return Answer(_native.calibrate_from(os.fspath(cluster), _files(files), runtime, os.fspath(out)))
    if cluster:
        return Answer(_native.calibrate_hosts(os.fspath(cluster), os.fspath(host), os.fspath(out), mpi,
                                              _mpirun_words(mpirun_args)))
    if host:
        raise UserError("`host` without a cluster: say which cluster's links are measured")
    return Answer(_native.calibrate(os.fspath(out), mpi))


def history() -> Answer:
    """The validations of this user, oldest first: entries, median_error, latest_median_error."""
    return Answer(_native.history())


def check_device(file: PathLike) -> Answer:
    """What is implausible or was assumed in a device's or cluster's file, and how sure predictions with it are."""
    return Answer(_native.check_device(os.fspath(file)))


def discover(*, gpus: bool = False, nccl_topology: PathLike = "", nvidia_smi: PathLike = "", device: str = "",
             port_bytes_per_s: float = 0, pcie_bytes_per_s: float = 0) -> Answer:
    """This machine (its cores, or its GPUs), or one by what its tools printed, as a cluster."""
    request = _native.DiscoverRequest()
    request.gpus, request.device = gpus, device
    request.port_bytes_per_s, request.pcie_bytes_per_s = port_bytes_per_s, pcie_bytes_per_s
    request.nccl_topology, request.nvidia_smi = os.fspath(nccl_topology), os.fspath(nvidia_smi)
    return Answer(_native.discover(request))
