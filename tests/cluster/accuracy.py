#!/usr/bin/env python3
"""Predicted beside measured on clusters of network namespaces: the product's promise in small.

    ORRERY=build/release/bin/orrery tests/cluster/accuracy.py [star] [racks] [slow-link] [slow-host] [--steps N]

Each cluster is described in a file, calibrated (`orrery calibrate CLUSTER`: messages between pairs of hosts, and, on the
first cluster, compute; no plan is run for it), then every plan is predicted and trained by `orrery validate`. Prints the table, the errors of the
step, Kendall's tau between predicted and measured order of the plans of one model, and how much slower than the best
measured plan the planner's first choice is.
"""
import argparse
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import namespaces
from namespaces import Disturbed

ORRERY = os.environ.get("ORRERY", "orrery")
CLUSTERS = {
    "star": dict(racks=[4]),
    "racks": dict(racks=[2, 2], uplink_mbit=50),
    "slow-link": dict(racks=[4], port_mbit={3: 25}),
    "slow-host": dict(racks=[4], cpu_of={3: 0.25}),
}
# Long messages (5 MB of gradients) and short ones (0.4 MB of gradients, activations of some KB), whose steps are short,
# so that there are more of them: the first after a start are slower.
MODELS = {
    "wide": dict(model=dict(n_embd=160, n_layer=4, n_head=4, n_positions=64, vocab_size=512), batch=8, seq=64, times=1),
    "narrow": dict(model=dict(n_embd=48, n_layer=4, n_head=4, n_positions=64, vocab_size=256), batch=8, seq=32, times=5),
}
PLANS = {
    "dp4": ["--dp", "4", "--zero", "0"],
    "dp4 zero1": ["--dp", "4", "--zero", "1"],
    "dp4 zero2": ["--dp", "4", "--zero", "2"],
    "dp4 zero3": ["--dp", "4", "--zero", "3"],
    "dp4 accumulated": ["--dp", "4", "--zero", "0", "--micro-batch", "1"],
    "dp4 fp16": ["--dp", "4", "--zero", "0", "--grad-compression", "fp16"],
    "dp4 int8": ["--dp", "4", "--zero", "0", "--grad-compression", "int8"],
    "dp4 servers": ["--dp", "4", "--zero", "0", "--sync", "parameter-server", "--servers", "4"],
    "dp4 asynchronous servers": ["--dp", "4", "--zero", "0", "--sync", "async-parameter-server", "--servers", "4"],
    "dp4 asynchronous server": ["--dp", "4", "--zero", "0", "--sync", "async-parameter-server", "--servers", "1"],
    "dp4 bounded servers": ["--dp", "4", "--zero", "0", "--sync", "async-parameter-server", "--servers", "4", "--staleness",
                            "2"],
    "tp4": ["--tp", "4"],
    "tp2 dp2": ["--tp", "2", "--dp", "2", "--zero", "0"],
    "pp4 gpipe": ["--pp", "4", "--micro-batch", "1", "--schedule", "gpipe"],
    "pp4 1f1b": ["--pp", "4", "--micro-batch", "2", "--schedule", "1f1b"],
    "pp2 dp2": ["--pp", "2", "--dp", "2", "--zero", "0", "--micro-batch", "2"],
    "pp2 tp2": ["--pp", "2", "--tp", "2", "--micro-batch", "2"],
    "pp2 dp2 uneven": ["--pp", "2", "--dp", "2", "--zero", "0", "--micro-batch", "2", "--stage-layers", "1,3"],
}


def kendall_tau(predicted, measured):
    """tau-b; pairs within 1% as measured are ties."""
    agree = ties_predicted = ties_measured = pairs = 0
    for i, j in itertools.combinations(range(len(predicted)), 2):
        pairs += 1
        p = predicted[i] - predicted[j]
        m = 0 if abs(measured[i] - measured[j]) <= 0.01 * max(measured[i], measured[j]) else measured[i] - measured[j]
        ties_predicted += p == 0
        ties_measured += m == 0
        agree += (p * m > 0) - (p * m < 0)
    scale = ((pairs - ties_predicted) * (pairs - ties_measured)) ** 0.5
    return agree / scale if scale else 1.0


PATIENCE_S = 420  # of this program: after that nothing is measured once more


BEGUN = time.monotonic()


def undisturbed(work, attempts, say):
    """What `work` returns, done again where the host gave this machine's processors to others meanwhile, and whether it
    did so the last time too."""
    for attempt in range(attempts):
        watched = namespaces.Watched()
        result = work()
        if not watched.disturbed():
            return result, False
        if time.monotonic() - BEGUN > PATIENCE_S:
            attempts = attempt + 1
        say(f"  {watched}" + ("; once more" if attempt + 1 < attempts else ""))
        if attempt + 1 >= attempts:
            break
        namespaces.wait_for_calm()
    return result, True


def orrery(*words):
    done = subprocess.run([ORRERY, *map(str, words)], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr.strip()


def judge(name, folder, steps, plans, say, host=None, strict=False):
    """Rows of one cluster: model, plan, predicted_s, measured_s. `plans`: of each model. `host`: a calibrated file of a
    cluster of the same hosts, whose compute is then not measured again. `strict`: nothing is judged by what was
    disturbed."""
    rows = []
    with namespaces.Namespaces(**CLUSTERS[name]) as cluster:
        described = folder / f"{name}.textproto"
        described.write_text(cluster.description(name))
        calibrated = folder / f"{name}-calibrated.textproto"
        done, disturbed = undisturbed(lambda: cluster.run([ORRERY, "calibrate", described, "--out", calibrated,
                                                           *(["--host", host] if host else [])], timeout=300), 2, say)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)
        if disturbed and strict:
            raise Disturbed("calibrate was disturbed twice")
        say("\n".join(line for line in done.stdout.splitlines() if line.startswith(("network", "  host", "  a ", "  of "))))
        for model in plans:
            config = folder / f"{model}.json"
            config.write_text(json.dumps({"model_type": "gpt2", "attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
                                          **MODELS[model]["model"]}))
            for plan in plans[model]:
                file = folder / "plan"
                code, error = orrery("plan", config, calibrated, "--global-batch", MODELS[model]["batch"], "--seq-len",
                                     MODELS[model]["seq"], "--precision", "fp32", "--optimizer", "sgd", "--out", file,
                                     *PLANS[plan])
                out = folder / "validation.json"
                if code == 0:
                    done, disturbed = undisturbed(
                        lambda: cluster.run([ORRERY, "validate", file, "--steps", steps * MODELS[model]["times"],
                                             "--json", out], timeout=180),
                        3, say)
                    code, error = done.returncode, done.stderr.strip()
                    if disturbed and strict:
                        raise Disturbed(f"{plan} was disturbed three times")
                if code != 0:
                    say(f"{name:10} {model:7} {plan:16} not run: {error.splitlines()[-1][:150] if error else code}")
                    continue
                result = json.loads(out.read_text())
                row = dict(cluster=name, model=model, plan=plan, predicted_s=result["predicted_step_time_s"],
                           measured_s=result["measured_step_time_s"], by_kind=result["by_kind"])
                rows.append(row)
                say(f"{name:10} {model:7} {plan:16} {1e3 * row['predicted_s']:9.1f} ms {1e3 * row['measured_s']:9.1f} ms"
                    f" {100 * (row['predicted_s'] / row['measured_s'] - 1):+7.1f}%")
    return rows


def summary(rows):
    """What predictions are held to, of the rows of one cluster. Order is among the plans of one model: of several models'
    taus the mean, by their pairs of plans."""
    errors = [abs(row["predicted_s"] / row["measured_s"] - 1) for row in rows]
    groups = {}
    for row in rows:
        groups.setdefault(row["model"], []).append(row)
    taus, pairs, regrets = [], [], []
    for group in groups.values():
        predicted, measured = [row["predicted_s"] for row in group], [row["measured_s"] for row in group]
        taus.append(kendall_tau(predicted, measured))
        pairs.append(len(group) * (len(group) - 1) // 2)
        chosen = min(group, key=lambda row: row["predicted_s"])
        regrets.append(chosen["measured_s"] / min(measured) - 1)
    return dict(plans=len(rows), median=statistics.median(errors), worst=max(errors),
                tau=statistics.fmean(taus, pairs) if sum(pairs) else 1.0, regret=max(regrets))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clusters", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--plans", nargs="*", default=list(PLANS))
    parser.add_argument("--host", help="a calibrated file of a cluster of the same hosts: compute is not measured again")
    parser.add_argument("--keep", help="where the last calibrated file is copied to")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    namespaces.skip_unless_possible()
    everything = []
    with tempfile.TemporaryDirectory(prefix="orrery-accuracy-") as folder:
        os.environ["ORRERY_DATA_DIR"] = folder
        host = arguments.host
        for name in arguments.clusters or CLUSTERS:
            rows = judge(name, pathlib.Path(folder), arguments.steps,
                         {model: arguments.plans for model in arguments.models},
                         lambda text: print(text, flush=True), host)
            host = host or pathlib.Path(folder) / f"{name}-calibrated.textproto"
            if arguments.keep:
                shutil.copy(pathlib.Path(folder) / f"{name}-calibrated.textproto", arguments.keep)
            everything += rows
            if rows:
                s = summary(rows)
                print(f"{name}: {s['plans']} plans, median error {100 * s['median']:.1f}%, worst {100 * s['worst']:.1f}%, "
                      f"Kendall's tau {s['tau']:.2f}, first choice {100 * s['regret']:.1f}% behind the best\n", flush=True)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
