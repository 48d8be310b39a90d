"""`paceline study`: a matrix of runs with repeats, resumed where it stopped, and its report."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from paceline.base.errors import BadInput, Interrupted
from paceline.base.files import locked, write_json
from paceline.base.names import unknown
from paceline.commands.prepare import Prepared, prepare
from paceline.commands.report import Reported, read, write_html
from paceline.commands.run import RUNS, Leave, settle
from paceline.launch.supervise import warmed
from paceline.launch.warm import Warm
from paceline.records.layout import StudyDir
from paceline.records.record import Record
from paceline.records.study import StudyPlan
from paceline.spec import study as studies
from paceline.spec import yaml
from paceline.spec.axes.launchers import LAUNCHERS
from paceline.spec.resolve import check_values, parameters, split
from paceline.spec.settings import Settings
from paceline.spec.study import StudyFile
from paceline.spec.tasks import BUILTIN, task_file
from paceline.study.campaign import PlannedRun, Watcher, finished, planned_runs, replacing, run_all, submit_all
from paceline.study.estimate import Outlook, outlook, repeats_for
from paceline.study.expand import Expanded, expand
from paceline.study.queued import pick_up


def shipped(*only: str) -> dict[str, StudyFile]:
    """The studies that come with Paceline, by name; a study's file has its name, so one of them is found without reading all."""
    studies_by_name: dict[str, StudyFile] = {}
    for item in sorted(files("paceline.study").joinpath("shipped").iterdir(), key=lambda item: item.name):
        if item.name.endswith(".yaml") and (not only or item.name.removesuffix(".yaml") in only):
            file = studies.parse(yaml.read(item.read_text(encoding="utf-8"), path=item.name))
            studies_by_name[file.study] = file
    return studies_by_name


def find(name: str, words: Mapping[str, str]) -> StudyFile:
    """A shipped study, a file, or a task with comma sweeps."""
    if name.endswith((".yaml", ".yml")):
        return studies.load(Path(name))
    if named := shipped(name):
        return named[name]
    file = task_file(name)
    if name in BUILTIN or file:
        swept = [key for key, text in words.items() if "," in text]
        stem = Path(file[0]).stem if file else name
        folder = re.sub(r"[^A-Za-z0-9.-]+", "_", "_".join([stem, *swept])).strip("_.-") or "study"
        return StudyFile(study=folder, task=name, about=f"{stem} over {', '.join(swept) or 'nothing'}")
    raise BadInput(unknown("study or task", name, [*shipped(), *BUILTIN]) + "; or give a file.yaml or file.py")


@dataclass(frozen=True, slots=True)
class Ready:
    """A study that could be started: its matrix, its folder, what is done already."""

    file: StudyFile
    prepared: Prepared
    expanded: Expanded
    folder: StudyDir
    changed: Sequence[studies.Change] = ()

    def all_planned_runs(self) -> list[PlannedRun]:
        return planned_runs(self.expanded.plan, self.expanded.specs, self.folder)

    def done(self, *, retry: bool = False) -> dict[str, list[Record]]:
        records: dict[str, list[Record]] = {label: [] for label in self.expanded.specs}
        for planned in self.all_planned_runs():
            if (record := finished(planned, retry=retry)) is not None:
                records[planned.label].append(record)
        return records


def ready(
    name: str,
    words: Mapping[str, str],
    *,
    repeats: int | None = None,
    quick: bool = False,
    out: str | PathLike[str] | None = None,
    warm: Warm | None = None,
) -> Ready:
    file = find(name, words)
    if quick:
        file = studies.quickened(file, words)
    changed = studies.changes(file, words) if file.reference else []
    file = studies.with_words(file, words)
    if repeats is not None:
        if not 1 <= repeats <= 1000:
            raise BadInput(f"--repeats {repeats}: must be between 1 and 1000")
        file = file.model_copy(update={"repeats": repeats})
    first = {
        **file.settings,
        **{key: values[0] for key, values in file.sweep.items()},
        **(file.cells[0] if file.cells else {}),
    }
    if "machine" in first:
        raise BadInput(
            "machine=: only a single run can be started on each machine by hand; for a study use a slurm+ launcher"
        )
    prepared = prepare(file.task, first, warm=warm)
    folder = StudyDir(Path(out).resolve() if out is not None else (RUNS / file.study).resolve())
    return Ready(file, prepared, _expand(file, prepared, quick=quick, changed=changed), folder, changed)


def _expand(file: StudyFile, prepared: Prepared, *, quick: bool, changed: Sequence[studies.Change] = ()) -> Expanded:
    def check(asked: Mapping[str, Any]) -> list[str]:
        own, rest = split(asked)
        return check_values(own) + parameters(prepared.params, rest, task=prepared.task)[1]

    expanded = expand(file, prepared.spec, check, quick=quick, changed=changed)
    if wrong := never_judged(expanded.plan):
        raise BadInput(wrong)
    return expanded


def never_judged(plan: StudyPlan) -> list[str]:
    """Conclusions of a study file whose figures no run of their cells can have. Of cells that this matrix has."""
    from paceline.analysis.possible import why_never

    specs = {cell.label: cell.spec for cell in plan.cells}
    asked = [
        (said.claim, metric, label)
        for said in plan.conclusions
        for metric, label in ((said.against or said.metric, said.baseline), (said.metric, said.candidate))
        if label in specs
    ]
    found = [(claim, label, why_never(metric, plan.task, specs[label])) for claim, metric, label in asked]
    first = {(claim, why): label for claim, label, why in reversed(found) if why}  # one mistake, one sentence
    return [f"conclusion {claim!r}, {label}: {why}" for (claim, why), label in reversed(first.items())]


def fit(what: Ready, budget_s: float, look: Outlook, *, most: int | None) -> Ready:
    """As many whole repeats as the budget holds, by what is known of the time now; at most those that were asked for."""
    from paceline.report.words.notes import fitted

    block = look.of(list(what.expanded.specs))
    if block is None:
        raise BadInput(f"--budget: how long a run takes is {look.how}; give --repeats instead")
    repeats = min(repeats_for(budget_s, block), most or 1000)
    file = what.file.model_copy(update={"repeats": repeats, "notes": [*what.file.notes, fitted(budget_s)]})
    expanded = _expand(file, what.prepared, quick=what.expanded.plan.quick, changed=what.changed)
    return Ready(file, what.prepared, expanded, what.folder, what.changed)


def look_ahead(
    what: Ready, *, budget_s: float | None = None, most: int | None = None, warm: Warm | None = None
) -> tuple[Ready, Outlook]:
    """How long it will probably take; with a budget, the study cut to it."""
    firsts = {label: specs[0] for label, specs in what.expanded.specs.items()}
    _warm_up(warm, [planned for planned in what.all_planned_runs() if not planned.run.finished])
    look = outlook(what.folder, firsts, what.done(), baseline=what.expanded.plan.baseline, warm=warm)
    return (what if budget_s is None else fit(what, budget_s, look, most=most)), look


def seconds(text: str) -> float:
    """`90s`, `20m`, `2h`, as every duration setting takes it."""
    wrong = check_values({"timeout": text})
    if wrong or float(Settings.model_validate({"timeout": text}).timeout) <= 0:
        raise BadInput(f"--budget {text}: must be a time such as 90s, 20m or 2h")
    return float(Settings.model_validate({"timeout": text}).timeout)


def hold(what: Ready) -> Any:
    """The study's folder for ourselves: two commands in one folder would run every cell twice."""
    path = what.folder.path
    ours = (
        not path.exists()
        or what.folder.plan.exists()
        or (path.is_dir() and all(p.name[0] == "." for p in path.iterdir()))
    )
    if not ours:
        raise BadInput(f"{what.folder.path}: is not empty and not a study of ours; choose another --out")
    return locked(what.folder.lock, why=f"{what.folder.path}: another paceline study is running in this folder")


def _warm_up(warm: Warm | None, coming: list[PlannedRun]) -> None:
    """Start the warm process while the study still plans, and import what the report needs at the same time, on another core.

    Imported later, it would be waited for; imported during a run, it would slow the run.
    """
    if warm is None or warm.started or not any(LAUNCHERS[planned.spec.launcher].forks_warm for planned in coming):
        return
    warm.start()
    from paceline.report import drawing

    importlib.import_module("scipy.stats")
    drawing.get_ready()


def start(
    what: Ready, watcher: Watcher, *, retry: bool = False, deadline_s: float | None = None, leave: Leave | None = None,
    warm: Warm | None = None,
) -> Reported:  # fmt: skip
    """Run what is not done yet and report on all of it; an interruption still leaves a report of what there is."""
    coming = _coming(what, retry=retry)
    _warm_up(warm, coming)
    try:
        run_all(coming, watcher, facts=what.prepared.facts, deadline_s=deadline_s, warm=warm)
    except KeyboardInterrupt:
        left = sum(not planned.run.finished for planned in what.all_planned_runs())
        write_html(read(what.folder.path), what.folder.html)
        settle((planned.run for planned in coming), leave)
        raise Interrupted(
            f"interrupted with {left} of {len(what.all_planned_runs())} runs to go; nothing finished is lost: "
            f"the same command goes on from here (so far: {what.folder.html})"
        ) from None
    if deadline_s is not None:
        _trim(what)
    reported = read(what.folder.path)
    write_html(reported, what.folder.html)
    return reported


def _coming(what: Ready, *, retry: bool) -> list[PlannedRun]:
    """What is to be run, after the plan was written down and jobs left by an earlier command were picked up."""
    write_json(what.folder.plan, what.expanded.plan.model_dump(mode="json", by_alias=True))
    pick_up(what.folder.path)
    return [
        replacing(planned, what.folder) for planned in what.all_planned_runs() if finished(planned, retry=retry) is None
    ]


def submit(what: Ready, *, retry: bool = False) -> list[int]:
    """`--detach`: every run that is not done, in the queue; the numbers of its jobs."""
    coming = _coming(what, retry=retry)
    try:
        return _submitted(what, coming)
    except KeyboardInterrupt:
        settle((planned.run for planned in coming), None)
        raise


def _submitted(what: Ready, coming: list[PlannedRun]) -> list[int]:
    if here := [planned.label for planned in coming if not planned.spec.in_queue]:
        raise BadInput(f"--detach: {here[0]} is no job in a queue; use a slurm+ launcher for every cell")
    return submit_all(coming, facts=what.prepared.facts)


def _trim(what: Ready) -> None:
    """Blocks a deadline cut off are no longer part of the plan: a report of them would say "pending" for ever."""
    repeats = max((planned.repeat + 1 for planned in what.all_planned_runs() if planned.run.finished), default=1)
    plan = what.expanded.plan
    cells = [cell.model_copy(update={"keys": cell.keys[:repeats]}) for cell in plan.cells]
    trimmed = plan.model_copy(update={"repeats": repeats, "cells": cells})
    write_json(what.folder.plan, trimmed.model_dump(mode="json", by_alias=True))


class Quiet:
    """A watcher that shows nothing."""

    def starting(self, planned: PlannedRun) -> None: ...

    def ticking(self, planned: PlannedRun, elapsed_s: float, waiting: str) -> None: ...

    def ended(self, planned: PlannedRun, record: Record) -> None: ...


def run_study(
    name: str | PathLike[str],
    *,
    repeats: int | None = None,
    quick: bool = False,
    out: str | PathLike[str] | None = None,
    **settings: Any,
) -> Reported:
    """A study from Python: a list or tuple of values is swept. `.found` holds the findings, `.study` the records.

    >>> paceline.run_study("mnist-convnet", on=["1x1", "1x2"], epochs=1, repeats=3)  # doctest: +SKIP
    """
    words = {key: _word(value) for key, value in settings.items()}
    with warmed() as warm:
        what = ready(os.fspath(name), words, repeats=repeats, quick=quick, out=out, warm=warm)
        with hold(what):
            return start(what, Quiet(), warm=warm)


def _word(value: Any) -> str:
    items: list[Any] = [*value] if isinstance(value, list | tuple) else [value]  # pyright: ignore[reportUnknownVariableType]
    return ",".join(str(item) for item in items)
