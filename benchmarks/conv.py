"""Convolution 3x3 + bias + ReLU (+ max pooling 2x2) on a CPU: our kernel beside torch's operators, forward and backward, as ratios.

    python benchmarks/conv.py [--repeats 15] [--threads 1] [--json]

Each round times every shape by both, one after the other in random order, by the quickest of several calls: on a machine that
others use too, that is what stays the same. "overhead" is a call on one 2x2 image: Python, the dispatcher, memory for results.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from ratios import ratio
from torch import Tensor

from paceline.worker.kernels.conv import conv_relu, operators, reference

# name: N, C, H = W, K, pooled, whether the input's gradient is needed
SHAPES = {
    "mnist-convnet conv1": (32, 1, 28, 4, True, False),
    "mnist-convnet conv2": (32, 4, 14, 8, True, True),
    "mnist-convnet conv1, batch 128": (128, 1, 28, 4, True, False),
    "mnist-convnet conv2, batch 128": (128, 4, 14, 8, True, True),
    "mnist-convnet conv2, batch 256": (256, 4, 14, 8, True, True),
    "conv-stack, 16 channels": (32, 16, 28, 16, False, True),
    "pooled, 16 channels": (32, 16, 28, 16, True, True),
    "cifar size, 32 channels": (64, 32, 32, 32, False, True),
    "one sample": (1, 4, 14, 8, True, True),
    "overhead": (1, 1, 2, 1, True, False),
}
WAYS: dict[str, Callable[..., Tensor]] = {"torch": reference, "fused": conv_relu}
_CALLS = 20


def seconds(call: Callable[[], Any]) -> float:
    best = float("inf")
    for _ in range(_CALLS):
        began = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - began)
    return best


def both(way: Callable[..., Tensor], shape: tuple[int, int, int, int, bool, bool]) -> tuple[float, float]:
    """Seconds of one forward, and of one backward pass through it."""
    num, channels, side, outs, pool, wanted = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num, channels, side, side, generator=generator).requires_grad_(wanted)
    weight = torch.randn(outs, channels, 3, 3, generator=generator).requires_grad_()
    bias = torch.randn(outs, generator=generator).requires_grad_()
    leaves = [weight, bias, *([x] if wanted else [])]
    out = way(x, weight, bias, pool=pool)
    up = torch.randn(out.shape, generator=generator)
    back = seconds(lambda: torch.autograd.grad(out, leaves, up, retain_graph=True))
    return seconds(lambda: way(x, weight, bias, pool=pool)), back


def measure(repeats: int) -> dict[str, dict[str, dict[str, list[float]]]]:
    found = {name: {part: {way: [] for way in WAYS} for part in ("forward", "backward")} for name in SHAPES}
    for way in WAYS.values():
        both(way, SHAPES["mnist-convnet conv2"])  # torch chooses and makes its kernels, we compile ours
    for _ in range(repeats):
        for name in random.sample(list(SHAPES), len(SHAPES)):
            for way in random.sample(list(WAYS), len(WAYS)):
                times = both(WAYS[way], SHAPES[name])
                for part, taken in zip(("forward", "backward"), times, strict=True):
                    found[name][part][way].append(taken)
    return found


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    operators()
    found = {
        name: {
            part: {
                **ratio(times["fused"], times["torch"]),
                "torch_s": statistics.median(times["torch"]),
                "fused_s": statistics.median(times["fused"]),
            }
            for part, times in parts.items()
        }
        for name, parts in measure(asked.repeats).items()
    }
    result = {
        "schema": 1, "what": "seconds of torch's operators over seconds of ours: above 1 ours is quicker", "shapes": found,
        "threads": asked.threads, "dtype": "float32", "torch": str(torch.__version__), "python": platform.python_version(),
        "processor": processor(), "vectors": torch.backends.cpu.get_cpu_capability(),
    }  # fmt: skip
    if asked.json:
        print(json.dumps(result, indent=1))
        return
    for name, parts in found.items():
        for part, row in parts.items():
            interval = f"[{row['low']:.1f}, {row['high']:.1f}]"
            print(
                f"{name:32} {part:8} {row['ratio']:5.1f}x {interval:13} n = {row['n']}, torch {row['torch_s'] * 1e6:7.0f} us, "
                f"fused {row['fused_s'] * 1e6:7.0f} us"
            )


if __name__ == "__main__":
    main()
