#!/usr/bin/env python3
"""Holds the house of docs/architecture.md: which room may include which, that a room stays small and is a CMake
target of its own, where foreign headers may stand, and that no program links SimGrid, nor orrery MPI.

usage: check_architecture.py SOURCE_DIR [PROGRAM…]   (programs: built executables whose libraries are looked at)
"""
import pathlib
import re
import subprocess
import sys

# What each room may include: these, and whatever those may. A folder with sources that is not here is a fault.
ROOMS = {
    "base": [],
    "base/answer": ["base"],
    "base/heap": [],
    "base/vectors": ["base"],
    "proto": ["base"],
    "topologies": ["proto"],
    "topologies/readers": ["topologies"],
    "workloads": ["proto"],
    "workloads/networks": ["workloads"],
    "workloads/readers": ["workloads/networks"],
    "program/samples": ["base"],
    "program": ["topologies", "workloads", "program/samples"],
    "program/lower": ["program"],
    "program/executable": ["program"],
    "program/measured": ["program"],
    "cost": ["program"],
    "sim/network": ["cost"],
    "sim/processes": ["sim/network"],
    "sim/scenario": ["sim/network"],
    "sim": ["sim/scenario", "sim/processes", "program/lower", "program/measured"],
    "sim/simgrid": ["sim/network"],
    "sim/zones": ["sim"],
    "planner/tables": ["cost", "program/lower"],
    "planner/closed_form": ["planner/tables", "program/measured"],
    "planner/uncertainty": ["planner/closed_form"],
    "planner/space": ["planner/closed_form", "program/executable"],
    "planner/evaluation": ["planner/uncertainty", "sim"],
    "planner/search": ["planner/space", "planner/evaluation"],
    "planner/hints": ["planner/search"],
    "planner/runs": ["planner/search"],
    "compare": ["planner/runs"],
    "handover/keys": ["base"],
    "handover": ["planner/space", "sim/scenario", "handover/keys"],
    "request": ["planner/runs", "handover", "topologies/readers", "workloads/readers"],
    "evidence/words": ["topologies/readers", "workloads/readers"],
    "evidence": ["evidence/words", "planner/space", "planner/evaluation"],
    "evidence/fits": ["evidence", "measurements/calibration"],
    "measurements": ["evidence"],
    "measurements/calibration": ["measurements"],
    "measurements/compare": ["measurements"],
    "exec/launch": ["base/answer"],
    "exec/device": ["program"],
    "exec/cpu": ["exec/device", "base/vectors"],
    "exec/communicators": ["cost", "exec/cpu"],
    "exec/cuda": ["exec/communicators"],
    "exec/mpi": ["exec/communicators"],
    "exec/state": ["exec/communicators", "program/lower"],
    "exec/math": ["exec/state", "program/executable"],
    "exec/data": ["workloads", "base/vectors"],
    "exec/run": ["exec/math", "exec/data", "exec/launch", "topologies/readers"],
    "exec/calibration": ["exec/run"],
    "exec": ["exec/calibration", "exec/cuda", "exec/mpi"],
    # orrery links no MPI: of exec/ it sees the launcher alone.
    "orrery": ["request", "planner/hints", "compare", "measurements/calibration", "measurements/compare", "exec/launch"],
    "orrery/schemas": ["orrery"],
    # What a page shows, on top of the façade.
    "report": ["orrery"],
    # The same page, live.
    "serve": ["report"],
    "cli/page": ["orrery"],
    "cli/terminal": ["base/answer"],
    "cli": ["orrery", "orrery/schemas", "report", "serve", "cli/page", "cli/terminal"],
    "cli/compare": ["cli"],
    "python": ["orrery"],
}
# Rooms that include what is named here and nothing that lies below it: what the façade hands on is enough.
DOORS = {
    "cli/terminal": {"cli/terminal", "base", "base/answer"},
    "cli": {"cli", "cli/page", "cli/terminal", "orrery", "orrery/schemas", "report", "serve", "base", "base/answer", "exec/launch"},
    "cli/page": {"cli/page", "orrery", "base"},
    "cli/compare": {"cli/compare", "cli", "cli/terminal", "orrery", "base"},
    "python": {"python", "orrery", "base", "exec/launch"},
}
# Tops whose headers know no JSON and no options: answers become JSON in orrery/, options are read in cli/.
VALUES = {"program", "cost", "sim", "planner", "compare", "handover", "evidence", "measurements"}
FORMATS = re.compile(r"nlohmann/|base/json\.h|CLI/")
MOST_FILES = 30  # headers and sources of a room
FOREIGN = {  # pattern: the tops or rooms in which it may be included
    r"simgrid/|xbt/": {"sim/simgrid", "sim/zones"},
    r"boost/graph/": {"workloads", "planner"},
    r"boost/(asio|beast)": {"serve"},
    r"mpi\.h": {"exec"},
    r"cuda|cublas|cudnn|nccl\.h": {"exec"},
    r"CLI/": {"cli", "exec"},
    r"pybind11/|Python\.h": {"python"},
    r"onnx/": {"workloads/readers"},
    r"hwloc": {"topologies/readers"},
    r"expat": {"topologies/readers"},
    r"nlopt|Eigen/": {"evidence", "measurements/calibration"},
    r"zlib\.h": {"measurements"},
    r"sqlite3\.h": {"measurements"},
    r"cblas|openblas|dnnl|oneapi/": {"exec"},
}
# Below the command line errors name values, "`tp` 3": cli/ (and exec/main.cc) make flags of them (base/option.h). What is handed over
# to other programs is full of theirs.
WITHOUT_FLAGS = {
    "base", "proto", "topologies", "workloads", "program", "cost", "sim", "planner", "compare", "measurements", "request", "orrery", "exec",
}
# What these rooms do holds of whatever trains by it: frameworks have their names in data, beside the exporters and importers.
WITHOUT_FRAMEWORKS = {"program", "cost", "sim", "planner"}
FRAMEWORK = re.compile(r"Megatron|DeepSpeed|Horovod|FSDP|\bDDP\b|NeMo|torchtitan|PyTorch|MaxText|\bJAX\b|TensorFlow|Colossal", re.I)
# Starts the executor; starts MPI's launchers; parses the executor's own options.
EXECUTORS_LINE = {"orrery/validate.cc", "orrery/calibrate.cc", "exec/launch/launcher.cc", "exec/main.cc"}
LITERAL_OR_COMMENT = re.compile(r'//[^\n]*|("(?:\\.|[^"\\\n])*")')
FLAG = re.compile(r"--[a-z]")
INTERNAL = re.compile(r"^namespace orrery::internal\b", re.M)  # a header for the top folder that it stands in
SOURCES = {".h", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def reachable(room: str) -> set[str]:
    """The rooms that `room` may include, itself among them."""
    seen, open_ = {room}, [room]
    while open_:
        for below in ROOMS[open_.pop()]:
            if below not in seen:
                seen.add(below)
                open_.append(below)
    return seen


def sources_by_room(root: pathlib.Path) -> dict[str, list[pathlib.Path]]:
    found: dict[str, list[pathlib.Path]] = {}
    for top in sorted({room.split("/")[0] for room in ROOMS}):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SOURCES:
                found.setdefault(str(path.parent.relative_to(root)), []).append(path)
    return found


def faults_of_file(path: pathlib.Path, room: str, root: pathlib.Path, may_use: set[str]) -> list[str]:
    faults = []
    for quote, target in INCLUDE.findall(path.read_text()):
        where = f"{path.relative_to(root)} includes {target}"
        home = str(pathlib.PurePath(target).parent)
        top = target.split("/")[0]
        if quote == '"' and top != room.split("/")[0] and (root / target).exists():
            if INTERNAL.search((root / target).read_text()):
                faults.append(f"{where}: namespace internal is {top}/'s own")
        if quote == '"' and target.split("/")[0] in {r.split("/")[0] for r in ROOMS} and home not in may_use:
            faults.append(f"{where}: {room}/ may not use {home}/")
        if target.endswith(".pb.h") and path.suffix == ".h":
            faults.append(f"{where}: generated messages stay out of headers")
        if path.suffix == ".h" and room.split("/")[0] in VALUES and FORMATS.match(target):
            faults.append(f"{where}: headers of {room}/ hold values, not their formats")
        for pattern, homes in FOREIGN.items():
            if re.match(pattern, target) and not homes & {room, room.split("/")[0]}:
                faults.append(f"{where}: belongs in {sorted(homes)}")
        if target.startswith("CLI/") and path.suffix == ".h":
            faults.append(f"{where}: the parser of words stays out of headers")
    if room.split("/")[0] in WITHOUT_FRAMEWORKS:
        for literal in LITERAL_OR_COMMENT.findall(path.read_text()):
            if FRAMEWORK.search(literal):
                faults.append(f"{path.relative_to(root)} names a framework in {literal}")
    if room.split("/")[0] in WITHOUT_FLAGS and str(path.relative_to(root)) not in EXECUTORS_LINE:
        for literal in LITERAL_OR_COMMENT.findall(path.read_text()):
            if FLAG.search(literal):
                faults.append(f"{path.relative_to(root)} has the flag of a command line in {literal}")
    return faults


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    faults = []
    seen = 0
    for room, below in ROOMS.items():
        if any(room in reachable(other) for other in below):
            faults.append(f"{room}/ is in a circle")
    for room, files in sources_by_room(root).items():
        seen += len(files)
        if room not in ROOMS:
            faults.append(f"{room}/ holds sources and is no room of scripts/check_architecture.py")
            continue
        if len(files) > MOST_FILES:
            faults.append(f"{room}/ has {len(files)} files: more than the {MOST_FILES} that one overlooks")
        if not (root / room / "CMakeLists.txt").exists() and room != "exec/mpi":  # built once for each MPI
            faults.append(f"{room}/ has no CMakeLists.txt: every room is a target of its own")
        may_use = DOORS.get(room) or reachable(room)
        for path in files:
            faults += faults_of_file(path, room, root, may_use)
    if seen < 50:
        faults.append(f"only {seen} source files found under {root}: is it the repository?")
    for program in sys.argv[2:]:
        libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        name = pathlib.Path(program).name
        if "libsimgrid" in libraries:
            faults.append(f"{name} links SimGrid, whose loading takes longer than most answers (sim/network/platform.h)")
        if name == "orrery" and re.search(r"libmpi(ch)?\.so", libraries):
            faults.append("orrery links MPI, whose symbols SimGrid has, too")
        if "libcublasLt" in libraries and not name.endswith("-cuda"):
            faults.append(f"{name} links CUDA, which takes ten times as long to load as all else")
    print("\n".join(faults) or f"{seen} files in {len(ROOMS)} rooms keep to the arrows")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
