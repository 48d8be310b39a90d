"""From the start of the first process to the end of the first step, for each launcher; and gloo against MPI, by message size.

    python benchmarks/launch.py [--repeats 6] [--only start|messages] [--json]

Launchers are compared on one machine (on=1x2) with `local`, interleaved, in a new order every round. `local, warm` is `local` from the
second run of a study on: its ranks are forked from a warm process, which a single run has to start first. The first step ends with
the slowest rank's first mark (log_every=1); time begins with the plan of the run, in this process. Those of Slurm take part
where a cluster is up (`paceline cluster up --machines 2 --cores 1`), also on=2x1; their time begins in the job, so the queue is
not in it, and `from_submission_s` stands beside it. An all-reduce is timed in one job that has joined both backends, gloo and MPI
by turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ratios import ratio

from paceline.commands import run
from paceline.launch.slurm.queue import BOX_CONF
from paceline.launch.supervise import warmed
from paceline.launch.warm import Warm
from paceline.records.events import Mark
from paceline.spec.host import here, installed, program

WARM = "local, warm"
LEAST = 5.0  # torchrun's time over that of a warm start
LOCAL = (WARM, "local", "spawn", "torchrun", "accelerate", "mpirun")
SLURM = ("slurm+torchrun", "slurm+accelerate", "slurm+mpirun", "slurm+srun")
HERE = Path(__file__).parent


def first_step(name: str, on: str, folder: Path, warm: Warm) -> tuple[float, float]:
    """(seconds from the first process to the end of the first step, seconds from the submission) of one run."""
    asked = {"on": on, "launcher": "local" if name == WARM else name, "steps": 1, "log_every": 1, "threads": 1}
    began_t = time.time()
    with contextlib.nullcontext(warm) if name == WARM else warmed() as used:
        record = run.start(run.ready("mnist-convnet", asked, out=folder, began_t=began_t, warm=used), warm=used)
    if not record.completed:
        raise SystemExit(f"{name} on={on}: {record.why}")
    started_t = record["finished_t"] - record.time["wall_s"]
    ended_t = max(event.t for _, event in record.events() if isinstance(event, Mark))
    waited_s = record["queue"]["waited_s"] if record["queue"] else 0.0
    return ended_t - started_t, ended_t - started_t + waited_s


def starts(repeats: int) -> dict[str, dict[str, Any]]:
    cases = [(name, "1x2") for name in LOCAL if _there(name)]
    if BOX_CONF.exists():
        cases += [(name, "2x1") for name in SLURM]
    seconds: dict[tuple[str, str], list[tuple[float, float]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder, warmed() as warm:
        warm.ready()
        for turn in range(-1, repeats):  # round -1 warms the file cache
            for case in random.sample(cases, len(cases)):
                found = first_step(*case, Path(folder) / f"{turn}-{case[0]}-{case[1]}", warm)
                if turn >= 0:
                    seconds[case].append(found)
    base = [pair[0] for pair in seconds["local", "1x2"]]
    return {
        f"{name} on={on}": {
            **ratio(base, [pair[0] for pair in pairs]),
            "median_s": statistics.median(pair[0] for pair in pairs),
            "from_submission_s": statistics.median(pair[1] for pair in pairs),
            "over_warm": ratio([pair[0] for pair in seconds[WARM, "1x2"]], [pair[0] for pair in pairs]),
        }
        for (name, on), pairs in seconds.items()
    }


def _there(launcher: str) -> bool:
    if launcher == "mpirun":
        return program("mpirun") is not None
    return launcher != "accelerate" or installed("accelerate") is not None


def messages() -> dict[str, dict[str, Any]]:
    """MPI's time over gloo's, by message size, at two ranks of one machine."""
    from paceline.launch.dialect import MPI_ENV

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "times.json"
        argv = [
            "mpirun",
            "-n",
            "2",
            sys.executable,
            str(HERE / "_allreduce_ranks.py"),
            str(Path(folder) / "store"),
            str(out),
        ]
        env = {name: value for name, value in MPI_ENV.items() if value is not None}
        subprocess.run(argv, env={**os.environ, **env, "OMP_NUM_THREADS": "1"}, check=True, timeout=300)
        times = json.loads(out.read_text())
    return {
        size: {
            **ratio(found["gloo"], found["mpi"]),
            "gloo_median_us": 1e6 * statistics.median(found["gloo"]),
            "mpi_median_us": 1e6 * statistics.median(found["mpi"]),
        }
        for size, found in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--only", choices=["start", "messages"])
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    result = {
        "schema": 1,
        "baseline": {"start": "local on=1x2", "messages": "gloo"},
        "least_over_warm": LEAST,
        "start": starts(asked.repeats) if asked.only != "messages" else None,
        "messages": messages() if asked.only != "start" else None,
        "versions": {name: installed(name) for name in ("torch", "mpi4py", "accelerate")},
        "python": platform.python_version(),
        "cores": here().cores,
    }
    if asked.json:
        print(json.dumps(result, indent=1))
        return
    for name, row in (result["start"] or {}).items():
        print(
            f"{name:26} {row['ratio']:5.2f}x [{row['low']:.2f}, {row['high']:.2f}] of local, n = {row['n']}, "
            f"median {row['median_s']:.2f} s (from submission {row['from_submission_s']:.2f} s)"
        )
    if result["start"]:
        row = result["start"]["torchrun on=1x2"]["over_warm"]
        enough = "at least" if row["ratio"] >= LEAST else "LESS THAN"
        interval = f"[{row['low']:.1f}, {row['high']:.1f}]"
        print(f"torchrun takes {row['ratio']:.1f}x {interval} of a warm start, n = {row['n']} ({enough} {LEAST:g})")
    for size, row in (result["messages"] or {}).items():
        print(
            f"all-reduce {size:>9} bytes: mpi {row['ratio']:.3f}x [{row['low']:.3f}, {row['high']:.3f}] of gloo, n = {row['n']}, "
            f"medians {row['mpi_median_us']:.0f} and {row['gloo_median_us']:.0f} us"
        )


if __name__ == "__main__":
    main()
