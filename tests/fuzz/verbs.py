"""Every verb with mutated files and arguments: verbs.py SECONDS [SEED [ROUNDS]], $ORRERY the program.

Each round takes a command line that works, damages one of its files or its arguments, and asks of the program: exit code
0, 2 or 3; on 2 one line of error; on 0 and 3 JSON without NaN or infinity, as the published schema has it; within a time;
no file half-written. What is not so is printed with the round's seed (verbs.py 0 SEED 1 repeats it), its files are kept,
and the script ends with 1.
"""
import collections
import gzip
import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ORRERY = os.environ["ORRERY"]
SOURCE = pathlib.Path(os.environ.get("ORRERY_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(SOURCE / "tests/cli"))
from orrery_case import faults_of  # noqa: E402

PUBLISHED = pathlib.Path(os.environ.get("ORRERY_PUBLISHED", SOURCE / "../shared/published"))
DATA = SOURCE / "tests/data"
SEEDS = SOURCE / "tests/fuzz/seeds"
LIMIT_S = float(os.environ.get("ORRERY_FUZZ_LIMIT_S", 120))
MEMORY = 8 << 30

SMALL = ["--global-batch", "8", "--seq-len", "64", "--top", "2"]
PLAN = SEEDS / "plan.textproto"
MOE = SEEDS / "plan_moe.textproto"
# Words of a command line; paths are files that may be damaged, "OUT" is a file that the verb writes.
COMMANDS = [
    ["describe", DATA / "huggingface/llama-3-8b.json"],
    ["describe", DATA / "huggingface/qwen2.5-vl-7b.json"],
    ["describe", SEEDS / "transformer.textproto"],
    ["plan", SEEDS / "transformer.textproto", "dgx-a100", "--gpus", "4", *SMALL, "--out", "OUT"],
    ["plan", "gpt2-tiny", DATA / "clusters/two-cores.textproto", *SMALL],
    ["plan", "gpt2-tiny", DATA / "clusters/h100-a100.textproto", "--global-batch", "64", "--seq-len", "64", "--top", "1"],
    ["plan", "gpt2-tiny", SEEDS / "simgrid_fat_tree.xml", "--global-batch", "16", "--seq-len", "64", "--top", "1"],
    ["plan", DATA / "huggingface/gpt2.json", "dgx-h100", "--gpus", "8", *SMALL, "--from-deepspeed", DATA / "import/deepspeed.json"],
    ["plan", DATA / "huggingface/llama-3-8b.json", "dgx-h100", "--from-torchtitan", DATA / "import/torchtitan_llama3_8b.toml", "--top", "1"],
    ["plan", DATA / "huggingface/llama-3-8b.json", "dgx-h100", "--from-nemo", DATA / "import/nemo_recipe.yaml", "--top", "1"],
    ["plan", "gpt2-tiny", "dgx-a100", "--gpus", "4", *SMALL, "--runtime", SOURCE / "program/runtimes/typical.textproto"],
    ["plan", "gpt2-tiny", "dgx-a100", "--gpus", "2", *SMALL, "--from-peft", SEEDS / "adapter_config.json"],
    ["plan", "gpt2-tiny", "dgx-a100", "--gpus", "8", *SMALL, "--zero", "1", "--pp", "2", "--schedule", "1F1B", "--micro-batch", "1"],
    ["whatif", "gpt2-tiny", "dgx-a100", *SMALL, "--vary", "gpus=2,4", "--vary", "network=0.5,2", "--tokens", "1M", "--out", "OUT"],
    ["simulate", PLAN, "--trace", "OUT"],
    ["simulate", MOE, "--steps", "1"],
    ["goodput", PLAN, "--steps", "10k", "--mtbf-device-hours", "50k", "--runs", "5"],
    ["goodput", MOE, "--tokens", "1G", "--mtbf-device-hours", "10000", "--runs", "5", "--spares", "1", "--repair-hours", "24"],
    ["export", PLAN, "--to", "megatron", "--out", "OUT"],
    ["export", MOE, "--to", "nemo", "--out", "OUT"],
    ["export", PLAN, "--to", "chakra", "--out", "OUT"],
    ["compare", "gpt2-tiny", DATA / "clusters/two-cores.textproto", "--global-batch", "8", "--seq-len", "64", "--horizon", "60"],
    ["collective", "all_reduce", DATA / "clusters/h100-a100.textproto", "--bytes", "1M,1G"],
    ["device", SOURCE / "topologies/devices/h100-sxm-80g.textproto"],
    ["discover", "--nccl-topology", SEEDS / "nccl_hopper.xml", "--out", "OUT"],
    ["discover", "--nvidia-smi", SEEDS / "smi_nvswitch.txt", "--device", "a100-sxm-80g", "--port-rate", "25e9", "--out", "OUT"],
    ["trace-diff", DATA / "measurements/kineto.json", DATA / "measurements/own_trace.json"],
    ["trace-diff", DATA / "measurements/nsys.sqlite", DATA / "measurements/kineto.json"],
    ["calibrate", "dgx-h100", "--from", DATA / "measurements/steps.csv", "--out", "OUT"],
    ["calibrate", "dgx-h100", "--from", DATA / "measurements/all_reduce_perf.log", "--out", "OUT"],
    ["calibrate", "dgx-h100", "--from", DATA / "measurements/megatron.log", DATA / "measurements/nemo.log", "--out", "OUT"],
    ["calibrate", "dgx-h100", "--from", DATA / "measurements/chakra.0.et", "--out", "OUT"],
    ["validate", "--published", SEEDS / "steps.csv", "--markdown", "OUT"],
    ["validate", "--published-collectives", SEEDS / "collectives.csv"],
    ["validate", PLAN, "--against", DATA / "measurements/own_trace.json"],
    ["validate", "--history", SEEDS / "history.jsonl"],
    ["calibrate", "--from-history", "--out", "OUT", SEEDS / "history.jsonl"],
    ["report", PLAN, "--search", "off", "--out", "OUT"],
    ["measurements"],
    ["catalog"],
    ["schema", "plan"],
]
# What a person may type in the place of a value.
VALUES = ["", "0", "-1", "1", "2", "3", "7", "1k", "1.5k", "10M", "2G", "1e308", "-1e308", "1e-308", "1e309", "nan", "inf", "-inf", "0x10",
          "1e6", "99999999999999999999", "9223372036854775807", "9223372036854775808", "2147483648", "1,000", "1/2", "½", "\u202e", "\t", " ",
          "on", "off", "none", "auto", "all", "-", "--", "a" * 5000, ",", ",,", "1,", ";", "=", "tp=1", "gpus=0", "/", ".", "/dev/null",
          "/dev/full", "/dev/null/x", "gpt2", "dgx-h100", "dgx-h10", "1F1B", "1f1b", "interleaved", "dualpipe-v", "full:1", "full:9999", "topk:0.01", "topk:2"]
WORDS = [b"0", b"-1", b"1e308", b"1e-308", b"1e999", b"nan", b"inf", b"null", b"true", b"{", b"}", b"[", b"]", b"\"", b"\\", b"\n", b"\0", b"\xff\xfe",
         b"9223372036854775807", b"4294967296", b"2147483647", b"99999999999999999999", b"", b"25", b"1e18", b"-0.0", b"\"\"", b"#", b":", b","]


def damaged(content, draw):
    """With one to six wounds, most of them in numbers and words: what breaks is what is nearly right."""
    content = bytearray(content)
    for _ in range(draw.choice([1, 1, 1, 2, 3, 6])):
        at = draw.randrange(len(content) + 1)
        kind = draw.randrange(10)
        if kind == 0:
            del content[at:]
        elif kind == 1:
            del content[at:at + draw.randrange(1, 40)]
        elif kind == 2:
            content[at:at] = content[(b := draw.randrange(len(content) + 1)):b + draw.randrange(1, 200)]
        elif kind == 3 and at < len(content):
            content[at] = draw.randrange(256)
        elif kind == 4:
            lines = bytes(content).split(b"\n")
            line = draw.randrange(len(lines))
            if draw.random() < 0.5:
                del lines[line]
            else:
                lines.insert(draw.randrange(len(lines)), lines[line])
            content = bytearray(b"\n".join(lines))
        else:
            numbers = list(re.finditer(rb"[-+]?[0-9][0-9.eE+-]*|\"[^\"\n]*\"|true|false", content))
            if not numbers:
                content[at:at] = draw.choice(WORDS)
                continue
            one = draw.choice(numbers)
            content[one.start():one.end()] = draw.choice(WORDS)
    return bytes(content)


def options_of(verb, known={}):
    """(name, takes a value) of the verb's help."""
    if verb not in known:
        text = subprocess.run([ORRERY, verb, "--help"], capture_output=True, text=True).stdout
        known[verb] = [(match[1], bool(match[2].strip())) for match in re.finditer(r"^  (?:-h,)?(--[a-z-]+)(.{0,20})", text, re.M)]
    return known[verb]


def mistyped(words, draw):
    words = list(words)
    for _ in range(draw.choice([1, 1, 2, 3])):
        kind = draw.randrange(8)
        at = draw.randrange(len(words)) if words else 0
        if kind <= 2 and len(words) > 1:
            words[draw.randrange(1, len(words))] = draw.choice(VALUES)
        elif kind == 3 and words:
            del words[at]
        elif kind == 4 and words:
            words.insert(draw.randrange(len(words) + 1), words[at])
        elif kind == 5 and words:
            word = str(words[at])
            cut = draw.randrange(len(word) + 1)
            words[at] = word[:cut] + draw.choice(["", "x", "-", "=", word[cut:cut + 1] * 2]) + word[cut + 1:]
        elif words and isinstance(words[0], str) and options_of(words[0]):
            name, takes = draw.choice(options_of(words[0]))
            if name in ("--port", "--mpirun-args", "--json"):
                continue
            words += [name, draw.choice(VALUES)] if takes else [name]
    return words


def refused(name):
    raise ValueError(f"{name} in JSON")


def look(words, folder):
    """(what is wrong, seconds)"""
    answer = folder / "answer.json"
    environment = {**os.environ, "ORRERY_DATA_DIR": str(folder / "data"), "HOME": str(folder), "COLUMNS": "80"}
    before = time.monotonic()
    try:
        command = [ORRERY, *(word.replace("\0", "") for word in words)]
        if words and words[0] not in ("schema",):
            command += ["--json", str(answer)]
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, cwd=folder / "here", env=environment,
                              stdin=subprocess.DEVNULL, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)))
    except subprocess.TimeoutExpired:
        return f"no answer within {LIMIT_S:.0f} s", LIMIT_S
    took = time.monotonic() - before
    errors = done.stderr.decode(errors="replace")
    if done.returncode not in (0, 2, 3):
        return f"exit code {done.returncode}: {errors[-2000:]}", took
    if done.returncode == 2:
        lines = [line for line in errors.splitlines() if line.startswith("orrery: ")]
        if len(lines) != 1 or not errors.endswith("\n"):
            return f"{len(lines)} lines of error: {errors[-2000:]!r}", took
    if done.returncode == 2 and answer.exists():
        return "JSON beside exit code 2", took
    if left := [str(path) for path in folder.rglob("*") if "tmp" in path.name or "partial" in path.name]:
        return f"left half-written: {left}", took
    for path in [answer, *(folder / "here").glob("out*.json")]:
        if not path.exists():
            continue
        try:
            read = json.loads(path.read_bytes(), parse_constant=refused)
        except ValueError as error:
            return f"{path.name} is no JSON: {error}", took
        if path == answer and (faults := faults_of(read)):
            return f"against its schema: {faults[:3]}", took
    text = done.stdout.decode(errors="replace")
    # A file may be called so.
    for word in words:
        text = text.replace(str(word), "") if re.fullmatch(r"-?(nan|inf)", str(word)) else text
    if done.returncode == 0 and (odd := re.search(r"(?<![\w.-])-?(nan|inf)(?![\w-])", text)):
        return f"'{odd[0]}' in the text: {text[max(0, odd.start() - 100):odd.end() + 40]!r}", took
    return None, took


def one_round(seed, kept):
    draw = random.Random(seed)
    words = draw.choice(COMMANDS)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="orrery-fuzz-"))
    (folder / "here").mkdir()
    files = [i for i, word in enumerate(words) if isinstance(word, pathlib.Path)]
    hurt = draw.choice(files) if files and draw.random() < 0.6 else None
    said = []
    for i, word in enumerate(words):
        if word == "OUT":
            word = str(folder / "here" / ("out" if words[0] in ("export",) else "out.json" if words[0] == "simulate" else "out.textproto"))
        elif isinstance(word, pathlib.Path):
            copy = folder / "here" / f"{i}{word.suffix}" if word.suffix else folder / "here" / word.name
            content = word.read_bytes()
            if i == hurt:
                content = damaged(content, draw)
                if draw.random() < 0.02:
                    content = gzip.compress(content)
            if word.name == "history.jsonl":  # no argument: what was validated before
                copy = folder / "data/history.jsonl"
                copy.parent.mkdir()
                copy.write_bytes(content)
                continue
            copy.write_bytes(content)
            word = copy.name
        said.append(str(word))
    if hurt is None:
        said = mistyped(said, draw)
    fault, took = look(said, folder)
    shown = " ".join(repr(word)[:60] if re.search(r"[^\w./=,:-]", word) or not word else word[:60] for word in said)
    if fault:
        to = kept / str(seed)
        shutil.copytree(folder, to, dirs_exist_ok=True)
        print(f"seed {seed}: orrery {shown}\n  {fault}\n  its files: {to}", flush=True)
    shutil.rmtree(folder)
    return fault, took, words[0]


def run(seconds, first, rounds):
    kept = pathlib.Path(os.environ.get("ORRERY_FUZZ_KEEP", tempfile.gettempdir())) / "orrery-fuzz-kept"
    begin, faults, slowest, seed = time.monotonic(), 0, (0, 0, ""), first
    verbs = collections.Counter()
    while seed - first < rounds if rounds else time.monotonic() - begin < seconds:
        fault, took, verb = one_round(seed, kept)
        faults += fault is not None
        slowest = max(slowest, (took, seed, verb))
        verbs[verb] += 1
        seed += 1
    print(f"{seed - first} rounds from seed {first} in {time.monotonic() - begin:.0f} s, {faults} faults; slowest {slowest[0]:.1f} s "
          f"({slowest[2]}, seed {slowest[1]}); {dict(verbs)}")
    return faults


if __name__ == "__main__":
    arguments = [int(float(word)) for word in sys.argv[1:]] + [0, 1, 0][len(sys.argv) - 1:]
    sys.exit(1 if run(*arguments) else 0)
