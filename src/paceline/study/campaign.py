"""Executing a study: each cell by itself, in order, resuming where it stopped. One failure never stops the others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.base.files import remove_tree
from paceline.records.facts import TaskFacts
from paceline.records.layout import RunDir, StudyDir
from paceline.records.outcome import TRANSIENT
from paceline.records.record import Record, load
from paceline.records.study import StudyPlan
from paceline.spec.run import Spec
from paceline.study.execute import run_once
from paceline.study.order import order


@dataclass(frozen=True, slots=True)
class Turn:
    """One run to come: its cell, its repeat, and where it stands in the whole."""

    label: str
    repeat: int
    spec: Spec
    run: RunDir


class Watcher(Protocol):
    """Whoever shows the progress; each call must be quick."""

    def starting(self, turn: Turn) -> None: ...

    def ticking(self, turn: Turn, elapsed_s: float) -> None: ...

    def ended(self, turn: Turn, record: Record) -> None: ...


def turns(plan: StudyPlan, specs: Mapping[str, Sequence[Spec]], folder: StudyDir) -> list[Turn]:
    cells = {cell.label: cell for cell in plan.cells if cell.skipped is None}
    sequence = order(list(cells), repeats=plan.repeats, seed=plan.seed)
    return [
        Turn(label, repeat, specs[label][repeat], folder.run(cells[label].folder, repeat)) for label, repeat in sequence
    ]


def finished(turn: Turn, *, retry: bool = False) -> Record | None:
    """The record that stands for this turn, if it need not be run again.

    A run that was killed from outside says nothing about its spec, so the same command runs it again, and so is one that
    timed out when it is given more time; any other failure is a result, and is repeated only when asked (`--retry`).
    """
    if not turn.run.finished:
        return None
    record = load(turn.run.path)
    if record["key"] != turn.spec.key():
        return None
    again = record.outcome == "failed" and (retry or record.kind in TRANSIENT or _more_time(record, turn.spec))
    return None if again else record


def _more_time(record: Record, spec: Spec) -> bool:
    """It ran out of time, and is given more now (0 is no limit)."""
    return record.kind == "timeout" and (spec.timeout == 0 or spec.timeout > record.spec["timeout"])


def run_all(
    coming: Sequence[Turn], watcher: Watcher, *, facts: TaskFacts | None = None, deadline_s: float | None = None
) -> None:
    """Run the turns that have no record yet. With a deadline, no block is begun that would probably not end in time."""
    began = time.monotonic()
    walls: dict[str, float] = {}
    block = -1
    for turn in coming:
        if turn.repeat != block:
            block = turn.repeat
            labels = {other.label for other in coming if other.repeat == block}
            expected = sum(walls.get(label, 0.0) for label in labels)
            if deadline_s is not None and walls and time.monotonic() - began + expected > deadline_s:
                return
        if turn.run.path.exists():
            remove_tree(turn.run.path)  # an attempt that was interrupted, or a record that no longer counts
        watcher.starting(turn)
        record = run_once(
            turn.spec, turn.run, tick=lambda elapsed, turn=turn: watcher.ticking(turn, elapsed), facts=facts
        )
        walls[turn.label] = record.time["wall_s"]
        watcher.ended(turn, record)
