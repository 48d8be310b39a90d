"""`paceline run`: one task, one spec, one record."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

from paceline.commands.prepare import Prepared, prepare
from paceline.launch.plan import Plan
from paceline.launch.supervise import Tick
from paceline.records.layout import RunDir
from paceline.records.record import Record
from paceline.spec.run import Spec
from paceline.study.execute import make_room, plan_of, run_once

RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class Ready:
    """A run that could be started: what `--dry-run` prints."""

    prepared: Prepared
    spec: Spec
    run: RunDir
    plan: Plan


def fresh_folder(task: str) -> Path:
    """A name that sorts by time and that two runs started in the same second do not share."""
    name = Path(task).stem if ".py" in task else task
    return RUNS / f"{name}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def ready(task: str, asked: Mapping[str, Any], *, out: str | PathLike[str] | None = None) -> Ready:
    prepared = prepare(task, asked)
    spec = prepared.spec(asked)
    run = RunDir(Path(out).resolve() if out is not None else fresh_folder(task).resolve())
    return Ready(prepared, spec, run, plan_of(spec, run))


def start(what: Ready, *, tick: Tick | None = None) -> Record:
    return run_once(what.spec, what.run, tick=tick, facts=what.prepared.facts)


def run(task: str | PathLike[str], *, out: str | PathLike[str] | None = None, **settings: Any) -> Record:
    """Train `task` (a built-in name or path/to/file.py[:Class]) and return its record.

    >>> record = paceline.run("my_task.py", on="1x2", epochs=5, hidden=64)  # doctest: +SKIP
    >>> record.test["accuracy"]  # doctest: +SKIP
    """
    asked = {name: value for name, value in settings.items() if value is not None}
    what = ready(os.fspath(task), asked, out=out)
    make_room(what.run)
    return start(what)
