"""On this machine: calibrated, predicted, trained under mpirun, compared; and learnt from."""
import os
import subprocess

import pytest

import orrery


NCCL_TESTS = "".join([
    "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20\n",
    *[f"#  Rank  {rank} Group  0 Pid {rank + 100} on node-a device  {rank} [0x0{rank}] NVIDIA A100-SXM4-80GB\n"
      for rank in range(8)],
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n",
    "     1048576        262144     float     sum      -1    45.00   23.30   40.78      0    45.00   23.30   40.78      0\n",
    "     4194304       1048576     float     sum      -1    80.00   52.43   91.75      0    80.00   52.43   91.75      0\n",
])

DEVICE = """\
name: "test-device"
source: "nobody's datasheet"
vendor: "amd"
peak { dtype: "fp32" flops_per_s: 163.4e12 }
peak { dtype: "bf16" flops_per_s: 1307.4e12 }
memory_bytes: 206e9
memory_bandwidth_bytes_per_s: 5.3e12
multiprocessors: 304
launch_overhead_s: 5e-6
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ORRERY_DATA_DIR", str(tmp_path / "data"))


def tiny():
    return orrery.plan("gpt2-tiny", "localhost", gpus=2, global_batch=4, seq_len=64, tp=1, dp=2, pp=1, top=1).best


def test_a_plan_is_trained_and_compared():
    validation = orrery.validate(tiny(), steps=3)
    assert validation.measured_step_time_s > 0 and validation.ranks == 2
    assert validation.relative_error == pytest.approx(
        validation.predicted_step_time_s / validation.measured_step_time_s - 1)
    kinds = validation.frame().set_index("kind")
    assert kinds.loc["forward", "measured_s"] > 0
    assert len(orrery.history().entries) == 1


def test_what_the_executor_says_is_the_exception():
    with pytest.raises(orrery.UserError, match="nonexistent"):
        orrery.validate(tiny(), steps=2, data="/nonexistent/text")


def test_steps_that_somebody_measured(tmp_path):
    plan = orrery.plan("gpt2", "dgx-a100", global_batch=8, seq_len=1024, tp=1, pp=1, zero=0, micro_batch=1,
                       recompute="none", top=1).best
    source = os.environ["ORRERY_SOURCE_DIR"]
    files = [f"{source}/tests/data/huggingface/gpt2.json"]
    with pytest.raises(orrery.UserError, match="gpt2.json"):
        orrery.validate(plan, against=files)
    with pytest.raises(orrery.UserError, match="gpt2.json"):
        orrery.calibrate("dgx-a100", files)
    with pytest.raises(orrery.UserError, match="only clusters of processors"):
        orrery.calibrate("dgx-a100", out=tmp_path / "site.textproto")
    table = tmp_path / "nccl.txt"
    table.write_text(NCCL_TESTS)
    learnt = orrery.calibrate("dgx-a100", table, out=tmp_path / "site.textproto")
    assert (tmp_path / "site.textproto").exists() and learnt.files[0]["collectives"] == 2


HOSTS = """\
name: "two"
source: "two nodes that are both this machine"
groups {
  count: 2
  node {
    name: "host"
    device: "generic-cpu"
    devices: 1
    intra { kind: SHARED_MEMORY bandwidth_bytes_per_s: 5e9 latency_s: 1e-6 }
    nic { count: 1 bandwidth_bytes_per_s: 1.25e9 }
  }
}
fabric { kind: STAR transport: TCP }
communication { library: "mpi" }
shared_cores: 2
"""


def test_the_links_of_hosts_are_calibrated(tmp_path):
    described, host, calibrated = tmp_path / "two.textproto", tmp_path / "host.textproto", tmp_path / "calibrated.textproto"
    described.write_text(HOSTS)
    subprocess.run([os.environ["ORRERY"], "discover", "--out", host], check=True, capture_output=True)
    with pytest.raises(orrery.UserError, match="where to"):
        orrery.calibrate(described, host=host)
    with pytest.raises(orrery.UserError, match="quotation"):
        orrery.calibrate(described, host=host, out=calibrated, mpirun_args="'-x")
    with pytest.raises(orrery.UserError, match="without a cluster"):
        orrery.calibrate(host=host)
    measured = orrery.calibrate(described, host=host, out=calibrated)
    assert measured.nodes == 2 and measured.network_latency_s > 0 and len(measured.pairs) == 1
    plan = orrery.plan("gpt2-tiny", calibrated, global_batch=4, seq_len=64, dp=2, tp=1, pp=1, top=1).best
    assert plan.step_time_s > 0


def test_a_device_file_is_reviewed(tmp_path):
    file = tmp_path / "machine.textproto"
    file.write_text(DEVICE)
    check = orrery.check_device(file)
    assert check.devices[0]["name"] == "test-device" and check.assumed
    file.write_text(DEVICE.replace("5.3e12", "25"))
    with pytest.raises(orrery.UserError, match="machine.textproto:7:"):
        orrery.check_device(file)
