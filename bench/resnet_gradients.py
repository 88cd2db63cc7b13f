#!/usr/bin/env python3
"""How far one step's gradients of ResNet-50 are from PyTorch's in double precision, beside PyTorch's own in fp32.

    resnet_gradients.py [--pictures 8]

From the same weights on the same pictures (224 x 224, noise on waves). A difference is a norm's: of all gradients together,
and of the tensor that is furthest off. Wants Debian's python3-torch. ORRERY: the program.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))
import numpy as np
import torch
from compare_with_pytorch import read_safetensors
from torch.nn import functional as F

RATE = 1e3  # so large that a weight's change is its gradient to the last digits
SIDE = 224


def make_pictures(folder, count):
    """One a class, so that any order is the same batch; as the executor reads them."""
    random, images = np.random.default_rng(3), []
    down, across = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    for label in range(count):
        waves = [np.sin(2 * np.pi * (random.uniform(-3, 3) * across + random.uniform(-3, 3) * down + random.uniform()))
                 for _ in range(3)]
        image = np.stack([128 + 60 * wave + random.normal(0, 40, (SIDE, SIDE)) for wave in waves]).clip(0, 255).astype(np.uint8)
        (folder / f"{label:03}").mkdir(parents=True)
        (folder / f"{label:03}" / "picture.ppm").write_bytes(b"P6\n224 224\n255\n" + image.transpose(1, 2, 0).tobytes())
        images.append((image.astype(np.float64) / 255 - 0.5) / 0.25)
    return torch.tensor(np.stack(images))


def forward(w, x):
    def norm(x, name):
        return F.batch_norm(x, None, None, w[name + ".weight"], w[name + ".bias"], True, 0.1, 1e-5)

    x = F.max_pool2d(F.relu(norm(F.conv2d(x, w["conv1.weight"], stride=2, padding=3), "bn1")), 3, 2, 1)
    for layer, blocks in enumerate((3, 4, 6, 3), 1):
        for block in range(blocks):
            p, stride = f"layer{layer}.{block}.", 2 if layer > 1 and block == 0 else 1
            y = F.relu(norm(F.conv2d(x, w[p + "conv1.weight"]), p + "bn1"))
            y = F.relu(norm(F.conv2d(y, w[p + "conv2.weight"], stride=stride, padding=1), p + "bn2"))
            y = norm(F.conv2d(y, w[p + "conv3.weight"]), p + "bn3")
            if p + "downsample.0.weight" in w:
                x = norm(F.conv2d(x, w[p + "downsample.0.weight"], stride=stride), p + "downsample.1")
            x = F.relu(x + y)
    return F.linear(x.mean((2, 3)), w["fc.weight"], w["fc.bias"])


def gradients(weights, images, kind):
    w = {name: tensor.to(kind).clone().requires_grad_(True) for name, tensor in weights.items()}
    F.cross_entropy(forward(w, images.to(kind)), torch.arange(len(images))).backward()
    return {name: tensor.grad.double() for name, tensor in w.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pictures", type=int, default=8)
    count = parser.parse_args().pictures
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        images = make_pictures(folder / "pictures", count)

        def orrery(*words):
            done = subprocess.run([os.environ.get("ORRERY", "orrery"), *map(str, words)], capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"resnet_gradients.py: {done.stderr.strip()}")

        plan, before, after = folder / "plan", folder / "before.safetensors", folder / "after.safetensors"
        orrery("plan", "resnet50", "localhost", "--gpus", 1, "--global-batch", count, "--micro-batch", count, "--recompute", "none",
               "--precision", "fp32", "--optimizer", "sgd", "--out", plan)
        run = ["run", plan, "--data", folder / "pictures", "--steps", 1, "--learning-rate"]
        orrery(*run, 1e-30, "--save", before)
        orrery(*run, RATE, "--init", before, "--save", after)
        first, then = read_safetensors(before), read_safetensors(after)
    weights = {name: tensor for name, tensor in first.items() if "running_" not in name and "num_batches" not in name}
    ours = {name: (tensor - then[name]) / RATE for name, tensor in weights.items()}
    exact = gradients(weights, images, torch.float64)
    length = sum(tensor.pow(2).sum() for tensor in exact.values()).sqrt()
    print("              all  worst tensor")
    for who, got in (("orrery", ours), ("PyTorch fp32", gradients(weights, images, torch.float32))):
        off = {name: (got[name] - exact[name]).norm() for name in exact}
        worst = max(off, key=lambda name: off[name] / exact[name].norm())
        print(f"{who:12} {sum(value ** 2 for value in off.values()) ** 0.5 / length:6.2%}  {off[worst] / exact[worst].norm():.2%} ({worst})")


if __name__ == "__main__":
    main()
