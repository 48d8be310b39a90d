"""What a study of short runs costs beside its training: the time of the whole command over the sum of its runs' training_s.

    python benchmarks/study.py [--repeats 3] [--steps 350] [--json]

20 eager runs of about a second each on one rank (mnist-convnet, 4 cells x 5), one study a round, in a folder of its own. The command is
timed from outside, from its first process to its exit: interpreter, plan, warm process, trial, runs, statistics and report.
Beside it stands where the rest went: in the runs (start-up and end of the ranks), between them, before the first, after the last.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ratios import ratio

from paceline.records.study import load_study
from paceline.spec.host import here, installed

LIMIT = 1.5
CELLS = ("lr=0.01,0.02,0.03,0.04", "--repeats", "5")


def command(steps: int, folder: Path) -> dict[str, float]:
    argv = [
        sys.executable, "-m", "paceline", "study", "mnist-convnet", "graph=eager", "threads=1", f"steps={steps}", *CELLS, "--json",
        "--out", str(folder),
    ]  # fmt: skip
    began_t = time.time()
    subprocess.run(argv, check=True, capture_output=True)
    ended_t = time.time()
    records = sorted(
        (record for cell in load_study(folder).cells for _, record in cell.completed), key=lambda record: record["finished_t"]
    )  # fmt: skip
    spans = [(record["finished_t"] - record.time["wall_s"], record["finished_t"]) for record in records]
    training, walls = sum(record.time["training_s"] for record in records), sum(end - start for start, end in spans)
    return {
        "command_s": ended_t - began_t,
        "training_s": training,
        "runs": len(records),
        "forked": sum(rank["start"] == "forked" for record in records for rank in record["ranks"]),
        "in_runs_s": walls - training,
        "before_s": spans[0][0] - began_t,
        "between_s": spans[-1][1] - spans[0][0] - walls,
        "after_s": ended_t - spans[-1][1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=350)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.repeats < 2:
        parser.error("--repeats: an interval needs at least 2")
    with tempfile.TemporaryDirectory() as folder:
        command(2, Path(folder) / "warm-up")  # the file cache, and what is made once a machine
        rounds = [command(asked.steps, Path(folder) / str(turn)) for turn in range(asked.repeats)]
    found = ratio([row["training_s"] for row in rounds], [row["command_s"] for row in rounds])
    result = {
        "schema": 1, "limit": LIMIT, **found, "rounds": rounds, "torch": installed("torch"), "python": platform.python_version(),
        "cores": here().cores,
    }  # fmt: skip
    if asked.json:
        print(json.dumps(result, indent=1))
        return
    print(
        f"20-run study: {found['ratio']:.2f}x [{found['low']:.2f}, {found['high']:.2f}] of its training time, n = {found['n']} "
        f"({'within' if found['ratio'] <= LIMIT else 'OVER'} {LIMIT})"
    )
    for row in rounds:
        print("  " + ", ".join(f"{name} {value:.2f}" for name, value in row.items()))


if __name__ == "__main__":
    main()
