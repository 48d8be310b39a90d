"""What watching costs: the very calls the probes make in one training step, timed by themselves, in microseconds a step.

    python benchmarks/probes.py [--device cpu|cuda] [--repeats 9] [--json]

`step` is every switch of the stopwatch in a step of two ranks and the question whether memory is looked at; `exchange` is the
reckoning of arrivals, spread over the steps it covers (arithmetic and copies only: its three messages are sent once in 16,384 steps).
`memory` is what looking at the first two steps of mnist-convnet adds, once a run, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from typing import Any

import numpy as np
import torch

from paceline.records.split import COMMUNICATION
from paceline.worker.measure.allocator import Cuda, host_memory
from paceline.worker.measure.arrivals import MOST_KEPT, wait_times
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.memory import STEPS, Memory
from paceline.worker.measure.timeline import following

ONE_STEP = ("optimizer", "data", "forward", "backward", COMMUNICATION, "optimizer")
NUM = 5000


def parts(device: torch.device) -> tuple[torch.nn.Module, torch.optim.Optimizer, Stopwatch, Memory]:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(4, 8, 3, padding=1),
        torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(392, 10),
    ).to(device)  # fmt: skip
    update = torch.optim.Adam(net.parameters())
    watch = following(Stopwatch("data"), device)
    allocator, why = (Cuda(device), None) if device.type == "cuda" else host_memory()
    return net, update, watch, Memory(net, update, allocator, why, watch)


def step_us(device: torch.device) -> float:
    *_, watch, memory = parts(device)
    memory._num = STEPS  # as after the first steps: it only says no
    began = time.perf_counter()
    for _ in range(NUM):
        if memory.looks:
            raise AssertionError
        for part in ONE_STEP:
            watch.switch(part)
    took = time.perf_counter() - began
    watch.settle()
    return took / NUM * 1e6


def exchange_us() -> float:
    came = np.random.default_rng(0).random((2, MOST_KEPT))
    began = time.perf_counter()
    wait_times(came, came[0], rank=0)
    return (time.perf_counter() - began) / MOST_KEPT * 1e6


def memory_ms(device: torch.device) -> float:
    """A step that is looked at, less one that is not: medians of several, in turns."""
    net, update, watch, memory = parts(device)
    x, y = torch.randn(32, 1, 28, 28, device=device), torch.randint(0, 10, (32,), device=device)

    def step() -> None:
        for part in ONE_STEP[:3]:
            watch.switch(part)
        update.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(net(x), y)
        watch.switch("backward")
        loss.backward()
        watch.switch("optimizer")
        update.step()
        watch.switch("data")
        watch.settle()

    took: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(60):
        began = time.perf_counter()
        if turn % 2:
            with memory:
                step()
        else:
            step()
        took[bool(turn % 2)].append(time.perf_counter() - began)
    return STEPS * 1e3 * (statistics.median(took[True]) - statistics.median(took[False]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    torch.set_num_threads(1)
    rows: dict[str, list[float]] = {
        "step_us": [step_us(device) for _ in range(asked.repeats)],
        "exchange_us": [exchange_us() for _ in range(asked.repeats)],
        "memory_ms": [memory_ms(device) for _ in range(3)],
    }
    found: dict[str, Any] = {
        name: {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}
        for name, values in rows.items()
    }
    result = {
        "schema": 1,
        "device": asked.device,
        **found,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    if asked.json:
        print(json.dumps(result, indent=1))
        return
    for name, row in found.items():
        print(f"{name:12} {row['median']:.2f} [{row['low']:.2f}, {row['high']:.2f}] (n = {row['n']})")


if __name__ == "__main__":
    main()
