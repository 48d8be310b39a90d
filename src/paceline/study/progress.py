"""How far a run is, read from the end of rank 0's events while it works. Reading only; the run never notices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.records.events import main_name
from paceline.records.layout import RunDir

_TAIL_BYTES = 32768  # the last test score may stand many lines of loss before the end


@dataclass(frozen=True, slots=True)
class Progress:
    phase: str  # starting | training
    epoch: int = 0
    iteration: int = 0
    throughput: float | None = None
    loss: float | None = None  # rank 0's own, of the steps before its last line
    score: tuple[str, float] | None = None  # the main one of the last evaluation, over all ranks


def peek(run: RunDir) -> Progress:
    """From the last line back, until both a line of training and one of an evaluation are found."""
    mark: Mapping[str, Any] | None = None
    score: tuple[str, float] | None = None
    for event in _last_events(run.events(0)):
        kind = event.get("event")
        if mark is None and kind == "mark" and event["seconds"] > 0:
            mark = event
        elif score is None and kind == "epoch" and event["split"] == "test":
            score = _main(event["total"])
        if mark is not None and score is not None:
            break
    if mark is None:
        return Progress("starting")
    rate = mark["num_global"] / mark["seconds"]
    return Progress("training", mark["epoch"] + 1, mark["iteration"], rate, mark["local"].get("loss"), score)


def _main(total: Mapping[str, float | None]) -> tuple[str, float] | None:
    """Its loss, where a task has no score."""
    name = main_name(total) or "loss"
    value = total.get(name)
    return (name, value) if value is not None else None


def _last_events(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = file.read().split(b"\n")
    for line in reversed(lines):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the first line of the tail is cut, the last may be half written
        if isinstance(event, dict):
            yield event
