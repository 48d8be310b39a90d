"""Executing a study: each cell by itself, in order, resuming where it stopped. One failure never stops the others."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from pydantic import ValidationError

from paceline.base.files import move, remove_tree
from paceline.launch.warm import Warm
from paceline.records.facts import TaskFacts
from paceline.records.layout import RunDir, StudyDir
from paceline.records.outcome import TRANSIENT
from paceline.records.record import Record, load
from paceline.records.study import StudyPlan
from paceline.spec.axes.launchers import LAUNCHERS
from paceline.spec.inputs import changed
from paceline.spec.run import Spec
from paceline.study import queued
from paceline.study.execute import needs_compiler, render, run_here
from paceline.study.order import order

_NAMED = 5  # of many files that changed


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run to come: its cell, its repeat, its spec and its folder."""

    label: str
    repeat: int
    spec: Spec
    run: RunDir


class Watcher(Protocol):
    """Whoever shows the progress; each call must be quick."""

    def starting(self, planned: PlannedRun) -> None: ...

    def ticking(self, planned: PlannedRun, elapsed_s: float, waiting: str) -> None: ...

    def ended(self, planned: PlannedRun, record: Record) -> None: ...


def planned_runs(plan: StudyPlan, specs: Mapping[str, Sequence[Spec]], folder: StudyDir) -> list[PlannedRun]:
    cells = {cell.label: cell for cell in plan.cells if cell.skipped is None}
    sequence = order(list(cells), repeats=plan.repeats, seed=plan.seed)
    return [
        PlannedRun(label, repeat, specs[label][repeat], folder.run(cells[label].folder, repeat))
        for label, repeat in sequence
    ]


def finished(planned: PlannedRun, *, retry: bool = False) -> Record | None:
    """The record that stands for this planned run, if it need not be run again. A run that was killed from outside is
    run again, because that says nothing about its spec; so is one that timed out, when it is given more time. Any other
    failure is a result, and is repeated only with `--retry`."""
    if not planned.run.finished:
        return None
    record = load(planned.run.path)
    if record.key != planned.spec.key() or outdated(planned.spec, record):
        return None
    again = record.outcome == "failed" and (retry or record.kind in TRANSIENT or _more_time(record, planned.spec))
    return None if again else record


def outdated(spec: Spec, record: Record) -> list[str]:
    """What a finished run of this experiment depended on, and is not as it was: in a few words each."""
    then = record.inputs
    return [] if then is None or not _same_but_source(spec, record) else changed(then, spec.inputs)


def _same_but_source(spec: Spec, record: Record) -> bool:
    try:
        made = Spec.model_validate(record.spec)
    except ValidationError:  # by another version of Paceline
        return False
    return made.model_copy(update={"source_sha256": spec.source_sha256}).key() == spec.key()


def replacing(planned: PlannedRun, folder: StudyDir) -> PlannedRun:
    """The finished run that is outdated is put aside now, so that no report counts it; the new one says why there is one."""
    why = why_outdated(planned)
    if why is None:
        return planned
    move(planned.run.path, folder.replaced(planned.run))
    return replace(planned, spec=planned.spec.model_copy(update={"again": f"made again, because {why}"}))


def why_outdated(planned: PlannedRun) -> str | None:
    """Of a finished run that no longer counts because of what it depended on."""
    if not planned.run.finished:
        return None
    record = load(planned.run.path)
    what = outdated(planned.spec, record)
    if not what:
        return None
    day = f" of {datetime.fromtimestamp(record.finished_t, tz=UTC):%Y-%m-%d %H:%M} UTC" if record.finished_t else ""
    return f"{', '.join(what[:_NAMED])}{' and more' if len(what) > _NAMED else ''} changed since the run{day}"


def _more_time(record: Record, spec: Spec) -> bool:
    """It ran out of time, and is given more now (0 is no limit)."""
    return record.kind == "timeout" and (spec.timeout == 0 or spec.timeout > record.spec["timeout"])


def run_all(
    coming: Sequence[PlannedRun], watcher: Watcher, *, facts: TaskFacts | None = None, deadline_s: float | None = None,
    warm: Warm | None = None,
) -> None:  # fmt: skip
    """Run the planned runs that have no record yet. With a deadline, no block is begun that would probably not end in time.

    `warm` is waited for before the first: what it takes is the study's, and in no run's time.
    """
    local = [planned.spec for planned in coming if LAUNCHERS[planned.spec.launcher].forks_warm]
    if warm is not None and local:
        warm.ready(graphs=any(needs_compiler(spec) for spec in local))
    began = time.monotonic()
    walls: dict[str, float] = {}
    block = -1
    jobs = in_jobs(coming)
    submitted = 0
    for index, job in enumerate(jobs):
        for planned in job:
            if planned.repeat != block:
                block = planned.repeat
                labels = {other.label for other in coming if other.repeat == block}
                expected = sum(walls.get(label, 0.0) for label in labels)
                if deadline_s is not None and walls and time.monotonic() - began + expected > deadline_s:
                    _withdraw(coming)
                    return
            watcher.starting(planned)
            # The queue is kept as full as max_jobs allows: while one run is waited for, the next ones wait for machines.
            while submitted < min(index + planned.spec.max_jobs, len(jobs)):
                _submit(jobs[submitted], facts)
                submitted += 1
            record = _run(planned, job, watcher, facts, warm)
            walls[planned.label] = record.duration_s
            watcher.ended(planned, record)


# What a job asks for once, for all its runs: runs that differ in it cannot share one.
_OF_THE_JOB = ("partition", "mem", "time", "account", "qos", "constraint", "gres", "activate", "sbatch", "head", "port")


def in_jobs(coming: Sequence[PlannedRun]) -> list[list[PlannedRun]]:
    """Which planned runs share a job: those with pack=true and the same resources, in their order; every other run has
    its own."""
    jobs: list[list[PlannedRun]] = []
    packs: dict[tuple[Any, ...], list[PlannedRun]] = {}
    for planned in coming:
        if planned.spec.in_queue and planned.spec.pack:
            asked = tuple(getattr(planned.spec, name) for name in _OF_THE_JOB)
            if asked not in packs:
                packs[asked] = []
                jobs.append(packs[asked])
            packs[asked].append(planned)
        else:
            jobs.append([planned])
    return jobs


def submit_all(coming: Sequence[PlannedRun], *, facts: TaskFacts | None = None) -> list[int]:
    """Every job of a study at once, for nobody to wait for: each may start when the one `max_jobs` before it is over."""
    numbers = sorted(
        {queued.number_of(planned.run) for planned in coming if planned.run.submitted}
    )  # of an earlier command
    known = len(numbers)
    for job in in_jobs(coming):
        most = job[0].spec.max_jobs
        number = _submit(job, facts, after=numbers[-most] if len(numbers) >= most else None)
        numbers += [] if number is None else [number]
    return numbers[known:]


def _withdraw(coming: Sequence[PlannedRun]) -> None:
    """Cancels jobs that were submitted before a deadline that has come: they would run on outside the study."""
    for planned in coming:
        if planned.run.submitted:
            queued.cancel(planned.run)


def _submit(job: Sequence[PlannedRun], facts: TaskFacts | None, *, after: int | None = None) -> int | None:
    """Nothing to do for planned runs that are not for a queue, or that an earlier command left in one."""
    todo = [planned for planned in job if planned.spec.in_queue and not queued.waits_for(planned.run, planned.spec)]
    if not todo:
        return None
    for planned in todo:
        _clear(planned)
    return queued.submit([render(planned.spec, planned.run, facts=facts) for planned in todo], after=after)


def _clear(planned: PlannedRun) -> None:
    """Removes an interrupted attempt, or a record that no longer counts."""
    if planned.run.path.exists():
        if planned.run.submitted:
            queued.cancel(planned.run)
        remove_tree(planned.run.path)


def _run(
    planned: PlannedRun, job: Sequence[PlannedRun], watcher: Watcher, facts: TaskFacts | None, warm: Warm | None
) -> Record:
    def tick(elapsed_s: float, waiting: str) -> None:
        watcher.ticking(planned, elapsed_s, waiting)

    if not planned.spec.in_queue:
        _clear(planned)
        return run_here(render(planned.spec, planned.run, facts=facts), tick=tick, warm=warm)
    if not planned.run.finished and not planned.run.submitted:  # packed behind a run that took the job with it
        _submit(job[job.index(planned) :], facts)
    return load(planned.run.path) if planned.run.finished else queued.wait(planned.run, tick=tick)
