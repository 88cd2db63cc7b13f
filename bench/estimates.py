#!/usr/bin/env python3
"""How far plans' estimates are from their simulations, over questions drawn by a seed.

    bench/estimates.py ORRERY [--questions 100] [--seed 1] [--worst 25]

A search simulates its best few and passes over the rest by estimate, so an estimate that errs hides a plan that is better
(too slow) or takes a simulation from one (too fast). Which questions err says which mechanism the closed form lacks: look at
the worst rows, ask one by `orrery plan` with its pins, and compare `breakdown_s`.
"""
import argparse
import json
import random
import statistics
import subprocess
import tempfile

MODELS = ["llama3-8b", "llama2-7b", "llama3-70b", "gpt3-175b", "mixtral-8x7b", "gpt3-7b", "megatron-22b", "qwen3-30b-a3b",
          "gpt2-xl", "deepseek-v3", "llama2-13b"]
CLUSTERS = ["a100-eth100", "dgx-h100", "dgx-a100", "pcie-l40s", "dgx-b200", "gb200-nvl72", "dgx-v100-32g"]
PINS = ["tp", "pp", "dp", "cp", "ep", "micro_batch", "schedule", "interleave", "zero", "recompute", "order"]


def question(draw):
    """The options of one `orrery plan`, of what is asked and what is pinned."""
    cluster = draw.choice(CLUSTERS)
    devices = draw.choice([72, 144, 288] if cluster == "gb200-nvl72" else [16, 32, 64, 128, 256])
    options = [draw.choice(MODELS), cluster, "--gpus", devices, "--global-batch", devices * draw.choice([1, 2, 4, 8])]
    for pin, odds, values in (("zero", 0.5, [0, 1, 2, 3]), ("pp", 0.5, [2, 4, 8]), ("tp", 0.4, [1, 2, 4, 8]),
                              ("cp", 0.2, [2, 4]), ("schedule", 0.3, ["gpipe", "1f1b", "interleaved", "zero-bubble"])):
        if draw.random() < odds:
            options += [f"--{pin}", draw.choice(values)]
    return list(map(str, options))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("orrery")
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worst", type=int, default=25)
    told = parser.parse_args()
    draw, rows, unanswered = random.Random(told.seed), [], 0
    for _ in range(told.questions):
        options = question(draw)
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            done = subprocess.run([told.orrery, "plan", *options, "--top", "12", "--json", out.name], capture_output=True)
            if done.returncode != 0:
                unanswered += 1
                continue
            plans = json.load(open(out.name))["plans"]
        # What was not simulated has its estimate for a step time.
        rows += [(plan["estimate_s"] / plan["step_time_s"] - 1, options, plan) for plan in plans
                 if plan.get("estimate_s") and plan["estimate_s"] != plan["step_time_s"]]
    errors = [abs(row[0]) for row in rows]
    print(f"{told.questions} questions, {unanswered} without an answer; {len(rows)} plans simulated: "
          f"mean error {100 * statistics.mean(errors):.1f}%, above 5%: {sum(e > .05 for e in errors)}, "
          f"above 8%: {sum(e > .08 for e in errors)}")
    for error, options, plan in sorted(rows, key=lambda row: -abs(row[0]))[:told.worst]:
        print(f"{100 * error:+6.1f}%  {' '.join(options)} | " + " ".join(f"{pin}={plan[pin]}" for pin in PINS))


if __name__ == "__main__":
    main()
