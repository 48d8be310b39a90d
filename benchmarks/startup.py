"""How long the commands that do not train take to answer, as a ratio to `python -c pass`, interleaved.

    python benchmarks/startup.py [--repeats 15] [--json]

`import torch` stands beside them: what every command would cost if the parent imported it.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ratios import ratio

PACELINE = [sys.executable, "-m", "paceline"]


def commands(run: Path) -> dict[str, list[str]]:
    return {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import torch": [sys.executable, "-c", "import torch"],
        "paceline --help": [*PACELINE, "--help"],
        "paceline list settings": [*PACELINE, "list", "settings"],
        "paceline run --dry-run": [*PACELINE, "run", "mnist-convnet", "--dry-run"],
        "paceline report RUN": [*PACELINE, "report", str(run)],
    }


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def measure(repeats: int) -> dict[str, list[float]]:
    """Every round runs every command once, in a new order: a slow minute is slow for all of them."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        subprocess.run(
            [*PACELINE, "run", "mnist-convnet", "steps=2", "--out", str(run)], check=True, capture_output=True
        )
        chosen = commands(run)
        for command in chosen.values():
            seconds(command)  # warm the file cache
        walls: dict[str, list[float]] = {name: [] for name in chosen}
        for _ in range(repeats):
            for name in random.sample(list(chosen), len(chosen)):
                walls[name].append(seconds(chosen[name]))
    return walls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    walls = measure(asked.repeats)
    base = walls["python -c pass"]
    found = {
        name: {**ratio(base, other), "median_s": statistics.median(other)}
        for name, other in walls.items()
        if other is not base
    }
    result = {
        "schema": 1,
        "baseline": "python -c pass",
        "commands": found,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    if asked.json:
        print(json.dumps(result, indent=1))
        return
    for name, row in found.items():
        interval = f"[{row['low']:.1f}, {row['high']:.1f}]"
        print(
            f"{name:26} {row['ratio']:6.1f}x {interval} of `python -c pass`, n = {row['n']}, median {row['median_s']:.3f} s"
        )


if __name__ == "__main__":
    main()
