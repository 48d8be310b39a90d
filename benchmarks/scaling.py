"""Two ranks against one at the same global batch, and against what one rank's own figures allow: interleaved runs of the product.

    python benchmarks/scaling.py [--tasks mnist-convnet,features] [--batch 256] [--data DIR] [--repeats 5] [--json]

The bound is T(batch) / T(batch / 2) of one rank: halving a batch does not halve its time, and no message could make two ranks quicker
than half a batch each. Every rank has one thread and a core of its own (threads=1 pin=cores).
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ratios import ratio

from paceline.spec.host import here, installed

FASTEST = {"mnist-convnet": ["kernel=fused"], "features": []}
EPOCHS = {"mnist-convnet": 8, "features": 40}  # some seconds each: this kind of machine is disturbed in bursts
MORE = 6  # as many epochs more where the data is the small one that ships


def rate(task: str, ranks: int, batch: int, data: str | None, epochs: int) -> float:
    """Training samples a second in the steady state, as the record has them."""
    with tempfile.TemporaryDirectory() as folder:
        argv = [
            sys.executable, "-m", "paceline", "run", task, f"on=1x{ranks}", f"batch={batch}", f"epochs={epochs}", "threads=1",
            "pin=cores", "graph=compile", "graph_of=step", "log_every=1000", "device=cpu", *FASTEST[task],
            *([f"data={data}"] if data and task == "mnist-convnet" else []), "--json", "--out", str(Path(folder) / "run"),
        ]  # fmt: skip
        done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}\n{done.stderr}")
    return json.loads(done.stdout)["throughput"]


def compare(task: str, batch: int, data: str | None, repeats: int) -> dict[str, Any]:
    epochs = EPOCHS[task] * (MORE if task == "mnist-convnet" and not data else 1)
    ways = {"two": (2, batch), "one": (1, batch), "half": (1, batch // 2)}
    seen: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repeats):
        for name in sorted(ways, reverse=number % 2 == 1):
            seen[name].append(rate(task, *ways[name], data, epochs))
            sys.stderr.write(f"{task} {number + 1}/{repeats} {name}: {seen[name][-1]:,.0f} samples/s\n")
    # of one rank: T(batch) / T(batch / 2) = 2 * rate(batch / 2) / rate(batch)
    bound = ratio(seen["one"], [2 * half for half in seen["half"]])
    return {
        "rates": seen,
        "speedup": ratio(seen["one"], seen["two"]),
        "bound": bound,
        "of_the_bound": ratio([2 * half for half in seen["half"]], seen["two"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="mnist-convnet,features")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--data", help="folder with MNIST/raw; unset: the images that ship")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = {task: compare(task, asked.batch, asked.data, asked.repeats) for task in asked.tasks.split(",")}
    if asked.json:
        host = here()
        versions = {"python": platform.python_version(), "torch": installed("torch")}
        print(json.dumps({"tasks": found, "batch": asked.batch, "cores": host.cores, "versions": versions}))
        return
    for task, row in found.items():
        for name in ("speedup", "bound", "of_the_bound"):
            figure = row[name]
            print(
                f"{task:14} {name:14} {figure['ratio']:.2f}  [{figure['low']:.2f}, {figure['high']:.2f}]  n = {figure['n']}"
            )


if __name__ == "__main__":
    main()
