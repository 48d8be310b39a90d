"""Training throughput of Paceline beside what a user would write or pick instead: the reports' plain loop, accelerate, Lightning.

    python benchmarks/train.py --device cpu --threads 1 --batch 32 --tasks features,mnist-convnet [--repeats 3] [--json | --markdown]

Everybody trains the same model from the same weights on the same batches in the same order, as long as the others, with torch's
optimizer of the same name; the loops are in `peers/`, and Paceline is the command `paceline run`. In each repeat, which has a seed of
its own, all of them run one after the other, each in a new process, in an order that turns. `rate` is training samples a second in the
steady state: the first 5 steps are dropped and evaluation is not in it, by the same rule for all; a compiler works in those steps, and
what it takes is told beside it (`compile_s`, measured with empty caches) with the number of steps that pay for it (`breakeven_steps`).
`ratio` is the geometric mean over the repeats of a contestant's rate / plain's, with a 95 % t interval. `wall_s` is a whole process,
start and evaluation included (Paceline scores the test set after every epoch, the others once).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ratios import ratio
from train_tables import markdown, terminal

from paceline.records.fingerprint import take
from paceline.records.steady import RULE
from paceline.spec.host import installed

HERE = Path(__file__).parent
STEP = ("graph=compile", "graph_of=step")

# Paceline's fastest settings for each task. On a GPU torch lets convolutions round to TF32 unless it is told not to, so the others'
# do; our fp32 is fp32. Where ours is tf32, which rounds the factors of all products, theirs is too.
TF32 = "precision=tf32"
FASTEST: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": {"features": STEP, "mnist-convnet": (*STEP, "kernel=fused"), "cifar-cnn": STEP},
    "cuda": {"features": STEP, "mnist-convnet": STEP, "cifar-cnn": (*STEP, TF32)},
}

PEERS = {"plain": None, "accelerate": "accelerate", "lightning": "lightning"}  # and the package each needs
NAMES = (*PEERS, "paceline")
SEED = 123
LIMIT_S = 1800
KEPT = ("rate", "accuracy", "loss", "steps", "seconds", "test_num", "gpu")


@dataclass(frozen=True, slots=True)
class Contest:
    """A task and how it is trained, by everybody. Epochs are for what ships with the task, and for its full data."""

    epochs: int
    full_epochs: int
    optimizer: str = "adam"
    lr: float = 1e-3
    weight_decay: float = 0.0
    decay: float = 1.0  # of the rate, after every epoch
    params: dict[str, Any] = field(default_factory=dict)
    takes_data: bool = True


CONTESTS = {
    "features": Contest(8, 8, takes_data=False),  # generated: 60,000 samples
    "mnist-convnet": Contest(15, 4, lr=5e-4),
    "cifar-cnn": Contest(10, 5, "adamw", weight_decay=0.05, decay=0.5, params={"augmented": False}),
}


class Failed(Exception):
    """A contestant ended without a result."""


class Interrupted(Exception):
    """By Ctrl-C. `rows`: what the repeats before it found, if there was one."""

    def __init__(self, rows: dict[str, Any] | None) -> None:
        super().__init__()
        self.rows = rows


def command(name: str, task: str, seed: int, asked: argparse.Namespace, out: Path) -> list[str]:
    """What is started. A number of epochs or steps, everything that is trained with, and nothing left to a default."""
    contest = CONTESTS[task]
    data = asked.data if contest.takes_data else None
    epochs = asked.epochs or (contest.full_epochs if data else contest.epochs)
    same: dict[str, Any] = {
        "device": asked.device, "threads": asked.threads, "batch": asked.batch, "seed": seed, "optimizer": contest.optimizer,
        "lr": contest.lr, "weight_decay": contest.weight_decay,
    }  # fmt: skip
    if name in PEERS:
        file = name if PEERS[name] is None else f"{name}_"
        more = {"task": task, "params": contest.params, "data": data, "epochs": epochs, "steps": asked.steps}
        more["tf32"] = TF32 in settings_of(task, asked)
        return [
            sys.executable,
            str(HERE / "peers" / f"{file}.py"),
            json.dumps({**same, **more, "decay": contest.decay}),
        ]
    words = {**same, **contest.params, "log_every": 1000}
    words |= {"epochs": epochs} if asked.steps is None else {"steps": asked.steps}
    if contest.decay != 1:
        words |= {"schedule": "exponential", "schedule_factor": contest.decay}
    if data:
        words["data"] = data
    typed = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in words.items()]
    settings = settings_of(task, asked)
    return [sys.executable, "-m", "paceline", "run", task, *typed, *settings, "--json", "--out", str(out)]


def settings_of(task: str, asked: argparse.Namespace) -> Sequence[str]:
    return FASTEST[asked.device][task] if asked.settings is None else asked.settings


def train(name: str, task: str, seed: int, asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One contestant, once, in a process of its own."""
    threads = str(asked.threads)
    # Caches of this benchmark's own, empty at its start: the first compilation is a real one, the later ones find it.
    caches = {"PACELINE_CACHE": folder / "cache", "TORCHINDUCTOR_CACHE_DIR": folder / "inductor"}
    env = {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        **{k: str(v) for k, v in caches.items()},
    }
    with tempfile.TemporaryDirectory(dir=folder) as out:
        argv = command(name, task, seed, asked, Path(out) / "run")
        began = time.perf_counter()
        try:
            done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"not done within {LIMIT_S} s") from None
        wall_s = time.perf_counter() - began
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise Failed(f"exit {done.returncode}: {last}")
    if name in PEERS:
        found = json.loads(done.stdout.splitlines()[-1])
        return {**{key: found[key] for key in KEPT}, "wall_s": wall_s}
    return {**from_record(json.loads(done.stdout)), "wall_s": wall_s}


def from_record(record: dict[str, Any]) -> dict[str, Any]:
    """The same figures from Paceline's record of its run."""
    if not record["steady"]["steady"]:
        raise Failed(f"no steady state: {record['steps']} steps ({RULE})")
    test, graph, dropped = record["test"], record["graph"] or {}, record["steady"]["dropped_steps"]
    return {
        "rate": record["throughput"],
        "accuracy": test["accuracy"],
        "loss": test["loss"],
        "steps": record["steps"],
        "seconds": (record["samples"] - dropped * record["spec"]["batch"]) / record["throughput"],
        "test_num": test["evaluated"],
        "compile_s": graph.get("compile_s"),
    }


def order(names: Sequence[str], turn: int) -> list[str]:
    """Another one begins in every repeat, and every second one goes backwards: nobody always runs behind the same."""
    first = turn % len(names)
    others = [*names[first + 1 :], *names[:first]]
    return [names[first], *(others[::-1] if turn % 2 else others)]


def missing() -> dict[str, str]:
    """The contestants that cannot take part here, and why."""
    return {
        name: f"{package} is not installed; pip install 'paceline[bench]'"
        for name, package in PEERS.items()
        if package is not None and installed(package) is None
    }


def compare(task: str, asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every contestant of one task. One that fails is a row that says so, and takes no further part."""
    rows: dict[str, dict[str, Any]] = {name: {"skipped": why} for name, why in missing().items()}
    rows |= {name: {"skipped": "not asked for (--contestants)"} for name in NAMES if name not in asked.contestants}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES if name not in rows}
    for turn in range(asked.repeats):
        try:
            _round(task, turn, asked, folder, runs, rows)
        except KeyboardInterrupt:
            runs = {name: found[:turn] for name, found in runs.items()}  # repeats in which everybody ran
            raise Interrupted(_rows(task, asked, runs, rows) if turn else None) from None
    return _rows(task, asked, runs, rows)


def _rows(
    task: str, asked: argparse.Namespace, runs: dict[str, list[dict[str, Any]]], rows: dict[str, Any]
) -> dict[str, Any]:
    base = runs["plain"] if "plain" not in rows else None
    for name in runs:
        if name not in rows:
            rows[name] = summary(runs[name], base, batch=asked.batch)
    rows["paceline"]["settings"] = list(settings_of(task, asked))
    return {name: rows[name] for name in NAMES}


def _round(
    task: str, turn: int, asked: argparse.Namespace, folder: Path, runs: dict[str, list[dict[str, Any]]], rows: dict[str, Any]
) -> None:  # fmt: skip
    for name in order(list(runs), turn):
        if name in rows:
            continue
        try:
            found = train(name, task, SEED + turn, asked, folder)
        except Failed as error:
            rows[name] = {"failed": str(error)}
            say(f"{task} {turn + 1}/{asked.repeats} {name}: {error}")
            continue
        runs[name].append(found)
        say(
            f"{task} {turn + 1}/{asked.repeats} {name}: {found['rate']:,.0f} samples/s, {found['accuracy']:.2%}, "
            f"{found['wall_s']:.1f} s in all"
        )


def summary(runs: Sequence[dict[str, Any]], plain: Sequence[dict[str, Any]] | None, *, batch: int) -> dict[str, Any]:
    """The figures of one contestant over its repeats; without plain there is nothing to compare with."""
    rates = [run["rate"] for run in runs]
    row: dict[str, Any] = {
        "rate": statistics.median(rates),
        "accuracy": statistics.fmean(run["accuracy"] for run in runs),
        "wall_s": statistics.median(run["wall_s"] for run in runs),
        "seconds": statistics.median(run["seconds"] for run in runs),
        "steps": runs[0]["steps"],
        "test_num": runs[0]["test_num"],
        "n": len(runs),
        "rates": rates,
        "accuracies": [run["accuracy"] for run in runs],
        "losses": [run["loss"] for run in runs],
    }
    if gpu := runs[0].get("gpu"):
        row["gpu"] = gpu
    if plain is None or runs is plain:
        return row
    base = [run["rate"] for run in plain]
    row |= ratio(base, rates)
    compiled = [run["compile_s"] for run in runs if run.get("compile_s") is not None]
    if compiled:
        saved_s = batch / statistics.median(base) - batch / row["rate"]  # a step
        row |= {
            "compile_s": compiled[0],
            "compile_cached_s": min(compiled[1:], default=None),
            "breakeven_steps": compiled[0] / saved_s if saved_s > 0 else None,
        }
    return row


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def hardware(tasks: dict[str, Any]) -> dict[str, Any]:
    seen = take(HERE)
    gpus = {row["gpu"] for rows in tasks.values() for row in rows.values() if "gpu" in row}
    return {**{name: seen[name] for name in ("cpu", "cores", "memory_bytes", "system")}, "gpu": ", ".join(gpus) or None}


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(CONTESTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--data", help="folder with MNIST/raw and cifar-10-batches-bin; unset: what ships with the tasks"
    )
    parser.add_argument("--epochs", type=int, help="instead of each task's own number")
    parser.add_argument("--steps", type=int, help="end the training early: for a quick look")
    parser.add_argument("--settings", type=str.split, help="Paceline's, instead of its fastest: 'graph=eager'")
    parser.add_argument("--contestants", type=lambda text: text.split(","), default=list(NAMES), help=",".join(NAMES))
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true")
    form.add_argument("--markdown", action="store_true")
    asked = parser.parse_args(words)
    if unknown := [task for task in asked.tasks if task not in CONTESTS]:
        parser.error(f"--tasks: no task {', '.join(unknown)} here; there are {', '.join(CONTESTS)}")
    if unknown := [name for name in asked.contestants if name not in NAMES]:
        parser.error(f"--contestants: nobody is called {', '.join(unknown)} here; there are {', '.join(NAMES)}")
    if not {"plain", "paceline"} <= {*asked.contestants}:
        parser.error("--contestants: plain and paceline are what is compared, and always take part")
    if min(asked.repeats, asked.threads, asked.batch) < 1:
        parser.error("--repeats, --threads and --batch must be at least 1")
    return asked


def main() -> None:
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
        tasks, interrupted = dict[str, Any](), False
        for task in asked.tasks:
            try:
                tasks[task] = compare(task, asked, Path(folder))
            except Interrupted as error:
                say(f"{task}: interrupted; what counts are the repeats in which everybody ran")
                interrupted = True
                if error.rows is not None:
                    tasks[task] = error.rows
                break
    result: dict[str, Any] = {
        "schema": 1,
        "baseline": "plain",
        "device": asked.device,
        "threads": asked.threads,
        "batch": asked.batch,
        "n": min((row["n"] for rows in tasks.values() for row in rows.values() if "n" in row), default=0),
        "interrupted": interrupted,
        "rule": RULE,
        "data": asked.data,
        "tasks": tasks,
        "hardware": hardware(tasks),
        "versions": {name: installed(name) for name in ("paceline", "torch", "accelerate", "lightning", "numpy")},
        "python": sys.version.split()[0],
    }
    if asked.json:
        print(json.dumps(result, indent=1))
    elif asked.markdown:
        print(markdown(result))
    else:
        terminal(result)
    if interrupted:
        raise SystemExit(130)
    if any("failed" in row for rows in tasks.values() for row in rows.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
