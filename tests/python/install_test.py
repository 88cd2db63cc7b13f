"""pip installs the package with its native module and its programs."""
import os
import subprocess
import sys


def test_pip_installs_what_was_built(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    source = os.environ["ORRERY_SOURCE_DIR"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", source, "--no-build-isolation", "--no-deps", "--quiet",
         "--target", str(tmp_path)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    script = ("import orrery; print(orrery.__file__, orrery.describe('gpt2').parameters); "
              "print(orrery.plan('gpt2-tiny', 'localhost', gpus=2, global_batch=2, seq_len=64, top=1).best.words)")
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path,
                          env={**environment, "PYTHONPATH": str(tmp_path)}).stdout
    assert str(tmp_path) in said and "124439808" in said
    version = subprocess.run([tmp_path / "orrery/bin/orrery", "--version"], capture_output=True, check=True)
    assert b"orrery" in version.stdout
