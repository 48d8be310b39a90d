"""Executing a study: each cell by itself, in order, resuming where it stopped. One failure never stops the others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paceline.base.files import remove_tree
from paceline.launch.warm import Warm
from paceline.records.facts import TaskFacts
from paceline.records.layout import RunDir, StudyDir
from paceline.records.outcome import TRANSIENT
from paceline.records.profile import took_s
from paceline.records.record import Record, load
from paceline.records.study import StudyPlan
from paceline.spec.run import Spec
from paceline.study import queued
from paceline.study.execute import needs_compiler, run_once
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

    def ticking(self, turn: Turn, elapsed_s: float, waiting: str) -> None: ...

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
    coming: Sequence[Turn], watcher: Watcher, *, facts: TaskFacts | None = None, deadline_s: float | None = None,
    warm: Warm | None = None,
) -> None:  # fmt: skip
    """Run the turns that have no record yet. With a deadline, no block is begun that would probably not end in time.

    `warm` is waited for before the first: what it takes is the study's, and in no run's time.
    """
    local = [turn.spec for turn in coming if turn.spec.launcher == "local"]
    if warm is not None and local:
        warm.ready(graphs=any(needs_compiler(spec) for spec in local))
    began = time.monotonic()
    walls: dict[str, float] = {}
    block = -1
    jobs = in_jobs(coming)
    submitted = 0
    for index, job in enumerate(jobs):
        for turn in job:
            if turn.repeat != block:
                block = turn.repeat
                labels = {other.label for other in coming if other.repeat == block}
                expected = sum(walls.get(label, 0.0) for label in labels)
                if deadline_s is not None and walls and time.monotonic() - began + expected > deadline_s:
                    _withdraw(coming)
                    return
            watcher.starting(turn)
            # The queue is kept as full as max_jobs allows: while one run is waited for, the next ones wait for machines.
            while submitted < min(index + turn.spec.max_jobs, len(jobs)):
                _submit(jobs[submitted], facts)
                submitted += 1
            record = _run(turn, job, watcher, facts, warm)
            walls[turn.label] = took_s(record)
            watcher.ended(turn, record)


# What a job asks for once, for all its runs: runs that differ in it cannot share one.
_OF_THE_JOB = ("partition", "mem", "time", "account", "qos", "constraint", "gres", "activate", "sbatch", "head", "port")


def in_jobs(coming: Sequence[Turn]) -> list[list[Turn]]:
    """Which turns share a job: those with pack=true that ask for the same, in their order; every other is by itself."""
    jobs: list[list[Turn]] = []
    packs: dict[tuple[Any, ...], list[Turn]] = {}
    for turn in coming:
        if turn.spec.in_queue and turn.spec.pack:
            asked = tuple(getattr(turn.spec, name) for name in _OF_THE_JOB)
            if asked not in packs:
                packs[asked] = []
                jobs.append(packs[asked])
            packs[asked].append(turn)
        else:
            jobs.append([turn])
    return jobs


def submit_all(coming: Sequence[Turn], *, facts: TaskFacts | None = None) -> list[int]:
    """Every job of a study at once, for nobody to wait for: each may start when the one `max_jobs` before it is over."""
    numbers = sorted({queued.number_of(turn.run) for turn in coming if turn.run.submitted})  # of an earlier command
    known = len(numbers)
    for job in in_jobs(coming):
        most = job[0].spec.max_jobs
        number = _submit(job, facts, after=numbers[-most] if len(numbers) >= most else None)
        numbers += [] if number is None else [number]
    return numbers[known:]


def _withdraw(coming: Sequence[Turn]) -> None:
    """Jobs submitted ahead of a deadline that has come: they would run on, outside the study."""
    for turn in coming:
        if turn.run.submitted:
            queued.cancel(turn.run)


def _submit(job: Sequence[Turn], facts: TaskFacts | None, *, after: int | None = None) -> int | None:
    """Nothing to do for turns that are not for a queue, or that an earlier command left in one."""
    todo = [turn for turn in job if turn.spec.in_queue and not queued.waits_for(turn.run, turn.spec)]
    if not todo:
        return None
    for turn in todo:
        _clear(turn)
    return queued.submit([queued.Wish(turn.spec, turn.run, facts) for turn in todo], after=after)


def _clear(turn: Turn) -> None:
    """An attempt that was interrupted, or a record that no longer counts, gives way."""
    if turn.run.path.exists():
        if turn.run.submitted:
            queued.cancel(turn.run)
        remove_tree(turn.run.path)


def _run(turn: Turn, job: Sequence[Turn], watcher: Watcher, facts: TaskFacts | None, warm: Warm | None) -> Record:
    def tick(elapsed_s: float, waiting: str) -> None:
        watcher.ticking(turn, elapsed_s, waiting)

    if not turn.spec.in_queue:
        _clear(turn)
        return run_once(turn.spec, turn.run, tick=tick, facts=facts, warm=warm)
    if not turn.run.finished and not turn.run.submitted:  # packed behind a run that took the job with it
        _submit(job[job.index(turn) :], facts)
    return load(turn.run.path) if turn.run.finished else queued.attend(turn.run, tick=tick)
