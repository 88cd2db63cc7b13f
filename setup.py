"""`pip install . --no-build-isolation --no-deps`: the package of python/, its native module and the programs built by CMake.

ORRERY_BUILD_DIR: the build folder (build/release; one that is configured stays as it is configured).
"""
import os
import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent
TARGETS = ["orrery_python", "orrery"]
EXECUTORS = [f"orrery-exec-{mpi}{cuda}" for mpi in ("openmpi", "mpich") for cuda in ("", "-cuda")]


class CMakeBuild(build_ext):
    def build_extension(self, ext):
        build = ROOT / os.environ.get("ORRERY_BUILD_DIR", "build/release")
        python = f"-DORRERY_PYTHON={sys.executable}"
        cache = build / "CMakeCache.txt"
        if not cache.exists():
            # The preset's compiler, or where there is none this machine's.
            compiler = [] if shutil.which("clang++-16") else ["-DCMAKE_CXX_COMPILER=c++"]
            subprocess.run(["cmake", "--preset", "release", "-B", str(build), python, *compiler], cwd=ROOT, check=True)
        elif f"ORRERY_PYTHON:FILEPATH={sys.executable}\n" not in cache.read_text():
            subprocess.run(["cmake", str(build), python], cwd=ROOT, check=True)
        known = subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"], check=True, capture_output=True,
                               text=True).stdout
        if "\norrery_python: " not in known:
            raise SystemExit("orrery: CMake did not find what the Python module needs: Debian's pybind11-dev, python3-dev")
        executors = [name for name in EXECUTORS if f"\n{name}: " in known]
        subprocess.run(["ninja", "-C", str(build), *TARGETS, *executors], check=True)
        target = pathlib.Path(self.get_ext_fullpath(ext.name))
        programs = target.parent / "bin"
        programs.mkdir(parents=True, exist_ok=True)
        native, = (build / "python/orrery").glob("_native*.so")
        shutil.copy2(native, target)
        for name in ["orrery", *executors]:
            shutil.copy2(build / "bin" / name, programs / name)
        shutil.copytree(build / "lib", target.parent / "lib", dirs_exist_ok=True)


setup(ext_modules=[Extension("orrery._native", [])], cmdclass={"build_ext": CMakeBuild})
