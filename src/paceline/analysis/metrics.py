"""The figures that a run is judged by: their names, directions and practical sizes. A table; it computes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Literal

from paceline.records.findings import Metric
from paceline.records.record import Record

TRAINING, WALL, TO_TARGET, THROUGHPUT = "time.training_s", "time.wall_s", "time.to_target_s", "throughput"

_TIMES = (
    Metric(TO_TARGET, "time to target", "s", "lower", "ratio", 0.02),
    Metric(TRAINING, "training time", "s", "lower", "ratio", 0.02),
    Metric(WALL, "wall time", "s", "lower", "ratio", 0.02, main=False),
    Metric(THROUGHPUT, "throughput", "samples/s", "higher", "ratio", 0.02),
)
_MEMORY = Metric("memory.rss_bytes", "memory", "bytes", "lower", "ratio", 0.02, main=False)
_DEVICE_MEMORY = Metric("memory.peak_bytes", "device memory", "bytes", "lower", "ratio", 0.02, main=False)

# Keys of a split that are counts, not figures.
_COUNTS = frozenset({"evaluated", "seen", "of", "num"})


def _score(name: str, better: Any) -> Metric:
    """A score of the test set. Only accuracy is known to be a fraction; any other matters from 1 % of its own size."""
    if name == "accuracy":
        return Metric("test.accuracy", "test accuracy", "fraction", "higher", "difference", 0.002)
    direction: Literal["higher", "lower"] | None = better if better in ("higher", "lower") else None
    return Metric(f"test.{name}", f"test {name}", "", direction, "difference", 0.01, relative=True)


def _loss(split: str) -> Metric:
    return Metric(f"{split}.loss", f"{split} loss", "", "lower", "difference", 0.01, relative=True, main=False)


def _names(records: Iterable[Record]) -> list[str]:
    """Every score any run has, the task's own first, in the order of first appearance."""
    found: dict[str, None] = {}
    for record in records:
        found.update(dict.fromkeys([*record.test, *record.train]))
    return [name for name in found if name not in _COUNTS and name != "loss"]


def main_score(records: Iterable[Record]) -> tuple[str, str | None] | None:
    """(name, direction) of the score the task calls its own."""
    for record in records:
        score: dict[str, Any] = record.plain.get("score") or {}
        if score.get("name"):
            return str(score["name"]), score.get("better")
    return None


def table(records: list[Record], quoted: Collection[str] = ()) -> tuple[Metric, ...]:
    """All metrics of these runs, in the order they are shown; what a report has a figure for is there even if no run has it."""
    own = main_score(records)
    names = sorted(_names(records), key=lambda name: own is None or name != own[0])
    scores: list[Metric] = []
    for name in names:
        test = _score(name, own[1] if own and name == own[0] else None)
        is_own = own is None or name == own[0]
        scores.append(replace(test, main=is_own))
        scores.append(replace(test, name=f"train.{name}", title=f"train {name}", compared=False, main=False))
    metrics = (*_TIMES, *scores, _loss("test"), replace(_loss("train"), compared=False), _MEMORY, _DEVICE_MEMORY)
    return tuple(m for m in metrics if m.name in quoted or any(record.metric(m.name) is not None for record in records))
