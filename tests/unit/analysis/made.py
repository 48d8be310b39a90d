"""Studies in memory, with exactly the figures a test wants. Nothing is random here and nothing touches the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.records.record import Record, parse
from paceline.records.split import TRAINING
from paceline.records.study import CellPlan, CellRecord, Conclusion, StudyPlan, StudyRecord

# Spread of about 1 % around a mean, the same in every cell: a paired difference then has almost no spread at all.
SHAKE = (1.0, 1.01, 0.99, 1.005, 0.995)


def run(training_s: float, *, accuracy: float | None = 0.9, seed: int = 0, **changes: Any) -> Record:
    """The record of a completed run; `spec` and `time` are added to, anything else replaces."""
    spec = {"task": "toy", "on": "1x1", "batch": 32, "batch_per_rank": None, "seed": seed, **changes.pop("spec", {})}
    scores = {} if accuracy is None else {"accuracy": accuracy}
    plain: dict[str, Any] = {
        "outcome": "completed", "kind": None, "why": None, "run_dir": None, "key": "k", "spec": spec,
        "train": {"loss": 0.5, **scores, "seen": 80, "of": 80}, "test": {"loss": 0.6, **scores, "evaluated": 20, "of": 20},
        "score": {"name": "accuracy", "better": "higher"} if accuracy is not None else None, "ranks": [], "history": [],
        "time": {"training_s": training_s, "wall_s": training_s + 1, "parts": {}, **changes.pop("time", {})},
        "throughput": 1000 / training_s if training_s else None, "memory": {"rss_bytes": 1000, "step_bytes": 500},
        "steady": {"steady": True},
        "fingerprint": {
            "host": "a", "cpu": "cpu", "cores": 2, "memory_bytes": 2**30, "gpus": 0, "python": "3.11",
            "versions": {"torch": "2.11"}, "git": {"commit": "c" * 40, "changed": False},
        },
    }  # fmt: skip
    return parse({**plain, **changes})


def parted(*ranks: Mapping[str, float | None], samples: int = 1000, **changes: Any) -> Record:
    """A run whose ranks spent these seconds in these parts. `training_s` is what the slowest spent; `late` is one row a rank."""
    spent = max(sum(parts.get(name) or 0.0 for name in TRAINING) for parts in ranks)
    training_s = changes.pop("training_s", spent)
    lates: Sequence[dict[str, float] | None] = changes.pop("late", [None] * len(ranks))
    hidden: float | None = changes.pop("hidden_s", None)
    rows = [
        {
            "rank": rank,
            "host": f"node{rank}",
            "train": None,
            "test": None,
            "time": dict(parts),
            "late": late,
            "hidden_s": hidden,
        }
        for rank, (parts, late) in enumerate(zip(ranks, lates, strict=True))
    ]
    return run(training_s, ranks=rows, samples=samples, **changes)


def profiled(data_share: float, types: Mapping[str, float], *, seed: int = 0, **changes: Any) -> Record:
    """A run that a profiler watched, as `records/profile.py` files it: no timing, no score."""
    profile = {"clean": {"data_share": data_share}, "types": {name: {"forward_s": s} for name, s in types.items()}}
    nothing = dict.fromkeys(("train", "test", "score", "time", "throughput", "steady", "memory", "energy", "cost"))
    ranks = [{"rank": 0, "host": "node0", "train": None, "test": None, "time": None, "late": None, "hidden_s": None}]
    changes["spec"] = {"profile": "inference", **changes.pop("spec", {})}
    return parse(
        {**run(1.0, seed=seed, **changes).plain, **nothing, "ranks": ranks, "profile": {"by_name": {}, **profile}}
    )


def broken(why: str, *, kind: str = "task", seed: int = 0, **changes: Any) -> Record:
    return run(1.0, seed=seed, outcome="failed", kind=kind, why=why, test=None, train=None, **changes)


def cell(
    label: str, runs: Sequence[Record | None], *, planned: bool = True, skipped: str | None = None, **plan: Any
) -> CellRecord:
    """`None` in `runs` is a repeat still to be made."""
    records = tuple((repeat, record) for repeat, record in enumerate(runs) if record is not None)
    spec = {**(records[0][1].spec if records else {"on": "1x1", "batch": 32}), **plan.pop("spec", {})}
    made = CellPlan(
        label=label, settings=plan.pop("settings", {"cell": label}), spec=spec, folder=label,
        keys=[f"k{i}" for i in range(len(runs))] if planned else [], skipped=skipped, **plan,
    )  # fmt: skip
    return CellRecord(made, records)


def timed(
    label: str, seconds: float, *, n: int = 5, accuracy: Sequence[float] | float = 0.9, **changes: Any
) -> CellRecord:
    """A cell whose runs share their seeds and their shake with every other such cell."""
    scores = [accuracy] * n if isinstance(accuracy, float) else list(accuracy)
    plan = {name: changes.pop(name) for name in ("planned", "settings", "reference") if name in changes}
    runs = [
        run(seconds * shake * (1 + i * 1e-3), accuracy=score, seed=i, **{k: dict(v) for k, v in changes.items()})
        for i, (shake, score) in enumerate(zip(SHAKE[:n], scores, strict=True))
    ]
    return cell(label, runs, **plan)


def study(*cells: CellRecord, conclusions: Sequence[Conclusion] = (), **plan: Any) -> StudyRecord:
    made = StudyPlan(**{
        "schema": 1, "name": "toy", "task": "toy", "swept": ["cell"], "repeats": 5, "baseline": cells[0].plan.label,
        "cells": [c.plan for c in cells], "conclusions": list(conclusions), **plan,
    })  # fmt: skip
    return StudyRecord(Path("nowhere"), made, cells)


def claim(metric: str, says: str, *, baseline: str = "a", candidate: str = "b") -> Conclusion:
    return Conclusion(claim=f"{candidate} is {says}", metric=metric, baseline=baseline, candidate=candidate, says=says)  # type: ignore[arg-type]
