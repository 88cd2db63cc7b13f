"""The functions give what the command line gives, with the same errors."""
import json
import os
import subprocess

import numpy
import pandas
import pytest

import orrery

ORRERY = os.environ["ORRERY"]


def command_line(*arguments):
    done = subprocess.run([ORRERY, *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr.strip()


def without_clocks(answer):
    """Deep, without what the wall clock says."""
    if isinstance(answer, dict):
        return {k: without_clocks(v) for k, v in answer.items() if k not in ("search_s", "wall_s")}
    return [without_clocks(v) for v in answer] if isinstance(answer, list) else answer


def same(answer, *arguments):
    code, stdout, stderr = command_line(*arguments, "--json", "-")
    assert code == 0, stderr
    printed = json.loads(stdout)
    head = {key: printed.pop(key) for key in ("schema", "verb", "version")}  # the command line's own
    assert head["verb"] == arguments[0] and head["schema"].startswith(f"orrery/{arguments[0]}/")
    assert without_clocks(answer.json) == without_clocks(printed)


def test_describe():
    same(orrery.describe("llama3-8b", seq_len=4096), "describe", "llama3-8b", "--seq-len", 4096)
    parts = orrery.describe("resnet50").frame()
    assert parts["parameters"].sum() == orrery.describe("resnet50").parameters


def test_plan(tmp_path):
    found = orrery.plan("gpt2", "dgx-a100", global_batch=64, seq_len=512, sequence_parallel=False, prove=False, tp=None,
                        top=4)
    same(found, "plan", "gpt2", "dgx-a100", "--global-batch", 64, "--seq-len", 512, "--sequence-parallel", "off",
         "--top", 4)
    assert len(found.plans) == len(found.frame()) == 4
    assert found.best.job["devices"] == 8
    found.best.save(tmp_path / "plan.textproto")
    loaded = orrery.load_plan(tmp_path / "plan.textproto")
    assert loaded.words == found.best.words
    simulated = orrery.simulate(tmp_path / "plan.textproto")
    assert simulated.step_time_s == found.best.step_time_s
    same(simulated, "simulate", tmp_path / "plan.textproto")
    assert "torchrun" in loaded.export("megatron")["launch.sh"]


def test_plans_of_lists_and_switches():
    plan = orrery.plan("gpt2", "dgx-a100", global_batch=8, pp=2, tp=1, schedule="1f1b", stage_layers=[5, 7]).best
    assert plan["stage_layers"] == [5, 7]
    assert plan.micro_batches * plan["micro_batch"] * plan["dp"] == 8


def test_compressed_gradients_leave_no_asynchronous_servers_to_compare_with():
    found = orrery.plan("resnet50", "v100-ib100", nodes=8, global_batch=256, micro_batch=32, precision="fp16",
                        runtime="horovod", grad_compression="fp16", top=1)
    servers, = [system for system in found.systems if system["kind"] == "async-parameter-server"]
    assert found.best["grad_compression"] == "fp16" and "refusal" in servers


def test_collective():
    times = orrery.collective("all-reduce", "v100-ib100", [1 << 16, 1 << 24], nodes=4)
    same(times, "collective", "all-reduce", "v100-ib100", "--nodes", 4, "--bytes", "64K,16M")
    assert times.time_s.shape == (2,) and times.time_s[0] < times.time_s[1]
    numpy.testing.assert_allclose(times.busbw_bytes_per_s, times.bytes / times.time_s * 2 * 3 / 4)


def test_nodes_of_each_kind():
    mixed = os.path.join(os.environ["ORRERY_SOURCE_DIR"], "tests", "data", "clusters", "h100-a100.textproto")
    times = orrery.collective("all-reduce", mixed, 1 << 24, nodes="2+1")
    same(times, "collective", "all-reduce", mixed, "--nodes", "2+1", "--bytes", "16M")
    assert times.devices == 24
    with pytest.raises(orrery.UserError, match="2 kinds of node"):
        orrery.collective("all-reduce", mixed, 1 << 24, nodes=3)
    found = orrery.plan("gpt2-tiny", mixed, nodes="0+1", global_batch=64, seq_len=64, top=1)
    assert found.best.job["devices"] == 8


def test_whatif():
    answer = orrery.whatif("gpt2", "dgx-a100", vary={"nodes": [1, 2]}, tokens=1e9, budget_usd=1e6, seq_len=512)
    same(answer, "whatif", "gpt2", "dgx-a100", "--vary", "nodes=1,2", "--tokens", "1e9", "--budget-usd", "1e6",
         "--seq-len", 512)
    assert answer.refusal == "" and list(answer.frame()["nodes"]) == [1, 2]
    asked = {"tokens": 1e9, "seq_len": 512}
    by_text = orrery.whatif("gpt2", "dgx-a100", vary={"device_memory": "1,2", "global_batch": [8]}, **asked)
    same(by_text, "whatif", "gpt2", "dgx-a100", "--vary", "device-memory=1,2", "--vary", "global-batch=8", "--tokens", "1e9",
         "--seq-len", 512)
    alone = orrery.whatif("gpt2", "dgx-a100", vary={"nodes": 2}, **asked)
    same(alone, "whatif", "gpt2", "dgx-a100", "--vary", "nodes=2", "--tokens", "1e9", "--seq-len", 512)
    for wrong in ({"tokens": -1}, {"samples": 0}, {"tokens": float("nan")}, {"tokens": 1e9, "samples": 5},
                  {"tokens": 1e9, "deadline_days": -1}, {"tokens": 1e9, "budget_usd": 0}):
        with pytest.raises(orrery.UserError):
            orrery.whatif("gpt2", "dgx-a100", vary={"nodes": [1]}, seq_len=512, **wrong)
    refused = orrery.whatif("gpt2", "dgx-a100", vary={"nodes": [1, 2]}, tokens=1e9, budget_usd=1e-6, seq_len=512)
    code, _, stderr = command_line("whatif", "gpt2", "dgx-a100", "--vary", "nodes=1,2", "--tokens", "1e9",
                                   "--budget-usd", "1e-6", "--seq-len", 512)
    assert code == 3 and stderr == f"orrery: {refused.refusal}"
    assert refused.cheapest is None and len(refused.points) == 2


def test_goodput(tmp_path):
    plan = orrery.plan("gpt2", "dgx-a100", global_batch=64, seq_len=512, top=1).best
    plan.save(tmp_path / "plan")
    run = orrery.goodput(plan, tokens=1e10, mtbf_device_hours=500, checkpoint_s=5, restart_s=60)
    same(run, "goodput", tmp_path / "plan", "--tokens", "1e10", "--mtbf-device-hours", 500, "--checkpoint-s", 5,
         "--restart-s", 60)
    assert 0 < run.goodput < 1 and len(run.frame()) == len(run.alternatives)


def test_catalog_discover_and_devices():
    same(orrery.catalog(), "catalog")
    same(orrery.discover(), "discover")
    assert "llama3-8b" in set(orrery.catalog().frame()["name"])


@pytest.mark.parametrize("call, arguments, kind, code", [
    (lambda: orrery.describe("no-such-model"), ("describe", "no-such-model"), orrery.UserError, 2),
    (lambda: orrery.plan("gpt3-175b", "pcie-4090", nodes=1, dp=8, seq_len=2048, lora_rank=0, top=1),
     ("plan", "gpt3-175b", "pcie-4090", "--nodes", 1, "--dp", 8, "--seq-len", 2048, "--top", 1), orrery.NoAnswer, 3),
    (lambda: orrery.collective("all-reduce", "dgx-a100", 1e6, algorithm="square"),
     ("collective", "all-reduce", "dgx-a100", "--bytes", "1e6", "--algorithm", "square"), orrery.UserError, 2),
    (lambda: orrery.collective("all-reduce", "dgx-a100", -1), None, orrery.UserError, 2),
    (lambda: orrery.collective("all-reduce", "dgx-a100", float("nan")), None, orrery.UserError, 2),
    (lambda: orrery.collective("all-reduce", "dgx-a100", []), None, orrery.UserError, 2),
    (lambda: orrery.load_plan("/nonexistent"), ("simulate", "/nonexistent"), orrery.UserError, 2),
])
def test_errors_have_the_text_of_the_command_line(call, arguments, kind, code):
    with pytest.raises(kind) as raised:
        call()
    assert isinstance(raised.value, orrery.Error)
    if arguments is None:  # what the command line cannot be told
        return
    done, _, stderr = command_line(*arguments)
    said = str(raised.value)
    for key in ("lora_rank", "quantize_base"):  # the command line names flags
        said = said.replace(f"`{key}`", f"--{key.replace('_', '-')}")
    assert (done, stderr) == (code, f"orrery: {said}")


def test_an_unknown_option_is_named_with_what_was_meant():
    with pytest.raises(orrery.UserError, match="globalbatch.*global_batch"):
        orrery.plan("gpt2", "dgx-a100", globalbatch=8)
    with pytest.raises(orrery.UserError, match="`tp` many"):
        orrery.plan("gpt2", "dgx-a100", tp="many")


def test_options_are_those_of_the_stubs():
    from orrery._options import PlanOptions

    table = orrery.options()
    assert isinstance(table, pandas.DataFrame)
    assert set(table["key"]) == set(PlanOptions.__annotations__)


def test_every_verb_says_what_it_takes():
    for name in ("plan", "simulate", "collective", "whatif", "goodput", "validate", "calibrate", "describe"):
        assert len(getattr(orrery, name).__doc__) > 100


def test_answers_show_themselves_in_notebooks():
    found = orrery.plan("gpt2", "dgx-a100", global_batch=8, top=2)
    simulated = orrery.simulate(found.best)
    shown = [found, found.best, simulated, orrery.catalog(), orrery.describe("gpt2"),
             orrery.collective("broadcast", "dgx-a100", 1e6), orrery.whatif("gpt2", "dgx-a100", vary={"nodes": [1]}),
             orrery.goodput(simulated, steps=1000, mtbf_device_hours=1e4, checkpoint_s=1)]
    for answer in shown:
        assert "<b>" in answer._repr_html_() or "<table>" in answer._repr_html_()
        assert type(answer).__name__ in repr(answer) or "Plan(" in repr(answer)
    assert found.why.split(".")[0].split("<")[0] in found._repr_html_()
    with pytest.raises(AttributeError, match="Search has no colour"):
        found.colour


def test_compare():
    asked = {"nodes": 2, "global_batch": 64, "seq_len": 512}
    found = orrery.compare("gpt2", "dgx-a100", strategies=["ddp", "ps-sync", "data-parallel"], **asked)
    same(found, "compare", "gpt2", "dgx-a100", "--nodes", 2, "--global-batch", 64, "--seq-len", 512, "--strategies",
         "ddp,ps-sync,data-parallel")
    frame = found.frame()
    assert list(frame["strategy"]) == ["ddp", "ps-sync", "data-parallel"]
    assert found.best == frame.loc[frame["samples_per_s"].idxmax(), "strategy"]
    assert "devices of one node" in frame["refusal"].iloc[2]
    assert len(found.frame("sizes")) == 3 * len(found.sizes)
    assert found.verdict.startswith(f"Best way: {found.best},") and f"<td>{found.best}</td>" in found._repr_html_()


def test_compare_under_trouble():
    found = orrery.compare("gpt2", "dgx-a100", global_batch=64, seq_len=512, strategies="ddp,ps-async",
                           trouble="slow-device=3:0.5", seed=2)
    same(found, "compare", "gpt2", "dgx-a100", "--global-batch", 64, "--seq-len", 512, "--strategies", "ddp,ps-async",
         "--trouble", "slow-device=3:0.5", "--seed", 2)
    kept = found.frame().set_index("strategy")["trouble_of_healthy"]
    assert kept["ddp"] < kept["ps-async"] < 1  # who waits for the slow one loses most


def test_what_compare_refuses():
    for asked, said in (({"strategies": "nothing-of-ours"}, "nothing-of-ours"), ({"trouble": "rain"}, "rain"),
                        ({"restart_s": -1}, "restart_s"), ({"horizon_s": float("nan")}, "horizon_s"),
                        ({"global_batch": 63}, "63")):
        with pytest.raises(orrery.UserError, match=said):
            orrery.compare("gpt2", "dgx-a100", **{"global_batch": 64, **asked})
    with pytest.raises(TypeError):
        orrery.compare("gpt2", "dgx-a100", tp=2)
