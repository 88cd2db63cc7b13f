#!/usr/bin/env python3
"""Holds the house of docs/architecture.md: which folder may include which, where foreign headers may stand, and that
no program links both SimGrid and MPI.

usage: check_architecture.py SOURCE_DIR [PROGRAM…]   (programs: built executables whose libraries are looked at)
"""
import pathlib
import re
import subprocess
import sys

MAY_USE = {
    "base": set(),
    "proto": {"base"},
    "topologies": {"base", "proto"},
    "workloads": {"base", "proto"},
    "program": {"base", "proto", "topologies", "workloads"},
    "sim": {"base", "proto", "topologies", "workloads", "program"},
    "planner": {"base", "proto", "topologies", "workloads", "program", "sim"},
    "exec": {"base", "proto", "topologies", "workloads", "program"},
    "cli": {"base", "proto", "topologies", "workloads", "program", "sim", "planner", "exec"},
}
# Of exec/, cli/ may see only the launcher: orrery links no MPI.
CLI_MAY_SEE_OF_EXEC = {"exec/launcher.h"}
FOREIGN = {  # pattern: folders in which it may be included
    r"simgrid/|xbt/": {"sim"},
    r"boost/graph/": {"workloads", "planner"},
    r"mpi\.h": {"exec"},
    r"cuda|cublas|cudnn|nccl\.h": {"exec"},
    r"CLI/": {"cli", "exec"},
    r"onnx/": {"workloads"},
    r"hwloc": {"topologies"},
    r"expat": {"topologies"},
    r"cblas|openblas|dnnl|oneapi/": {"exec"},
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    faults = []
    seen = 0
    for folder, allowed in MAY_USE.items():
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cc", ".cu", ".cuh"}:
                continue
            seen += 1
            for quote, target in INCLUDE.findall(path.read_text()):
                top = target.split("/")[0]
                where = f"{path.relative_to(root)} includes {target}"
                if quote == '"' and top in MAY_USE and top != folder:
                    if top not in allowed:
                        faults.append(f"{where}: {folder}/ may not use {top}/")
                    elif folder == "cli" and top == "exec" and target not in CLI_MAY_SEE_OF_EXEC:
                        faults.append(f"{where}: cli/ may see only {sorted(CLI_MAY_SEE_OF_EXEC)} of exec/")
                if target.endswith(".pb.h") and path.suffix == ".h":
                    faults.append(f"{where}: generated messages stay out of headers")
                for pattern, homes in FOREIGN.items():
                    if re.match(pattern, target) and folder not in homes:
                        faults.append(f"{where}: belongs in {sorted(homes)}")
    if seen < 50:
        faults.append(f"only {seen} source files found under {root}: is it the repository?")
    for program in sys.argv[2:]:
        libraries = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        simgrid = "libsimgrid" in libraries
        mpi = re.search(r"libmpi(ch)?\.so", libraries) is not None
        if simgrid and mpi:
            faults.append(f"{program} links SimGrid and MPI: MPI_Init would land in the simulator")
        name = pathlib.Path(program).name
        if name == "orrery" and mpi:
            faults.append("orrery links MPI")
        if name.startswith("orrery-exec") and simgrid:
            faults.append(f"{name} links SimGrid")
    print("\n".join(faults) or f"{seen} files keep to the arrows")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
