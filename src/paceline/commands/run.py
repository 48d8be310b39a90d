"""`paceline run`: one task, one spec, one record."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.base.errors import BadInput, Interrupted, PacelineError
from paceline.commands.prepare import Prepared, prepare
from paceline.commands.profile import write_page
from paceline.launch.plan import Plan
from paceline.launch.supervise import Tick, warmed
from paceline.launch.warm import Warm
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.spec.settings import names
from paceline.spec.tasks import task_file
from paceline.study import queued
from paceline.study.dispatch import run_to_record
from paceline.study.execute import RenderedRun, Since, check_folder, render

if TYPE_CHECKING:
    from paceline.records.record import Record

RUNS = Path("runs")


@dataclass(frozen=True, slots=True)
class Ready:
    """A run that could be started: what `--dry-run` prints."""

    prepared: Prepared
    rendered: RenderedRun
    began_t: float | None = None  # of the command that is for this run alone

    @property
    def spec(self) -> Spec:
        return self.rendered.spec

    @property
    def run(self) -> RunDir:
        return self.rendered.run

    @property
    def plan(self) -> Plan:
        return self.rendered.plan


def fresh_folder(task: str) -> Path:
    """A name that sorts by time and that two runs started in the same second do not share."""
    file = task_file(task)
    name = Path(file[0]).stem if file else task
    return RUNS / f"{name}-{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def ready(
    task: str, asked: Mapping[str, Any], *, out: str | PathLike[str] | None = None, began_t: float | None = None,
    warm: Warm | None = None,
) -> Ready:  # fmt: skip
    _one_value_each(asked)
    prepared = prepare(task, asked, warm=warm, keeps=True)
    spec = prepared.spec(asked)
    run = RunDir(Path(out).resolve() if out is not None else fresh_folder(task).resolve())
    if not str(run.path).isprintable():
        raise BadInput(
            f"--out {str(run.path)!r}: a folder whose name cannot be printed cannot be told to a launcher; choose another"
        )
    if spec.machine is not None and out is None:
        raise BadInput(
            f"machine={spec.machine}: give --out too, the same folder on every machine, on a disk they share"
        )
    # Another machine finds the folder as the first one has made it.
    if not spec.machine and not queued.waits_for(run, spec):
        check_folder(run)
    return Ready(prepared, render(spec, run, facts=prepared.facts), began_t)


def _one_value_each(asked: Mapping[str, Any]) -> None:
    """A sweep belongs to a study. The name of a folder, or a parameter of the task, may hold a comma."""
    free = {"data", "gres", "constraint", "sbatch", "activate"}
    swept = [name for name in names() if name not in free and "," in str(asked.get(name, ""))]
    if swept:
        said = " ".join(f"{name}={asked[name]}" for name in swept)
        raise BadInput(f"{said}: a run takes one value of each setting; several are swept by `paceline study`")


def refused(task: str, words: Sequence[str], error: PacelineError) -> dict[str, Any]:
    """The document of a run that was never started, with what was asked as it was typed."""
    from paceline.records.gather import refusal

    asked = {pair.partition("=")[0]: pair.partition("=")[2] for pair in words}
    return refusal({"task": task, **asked}, "; ".join(str(error).splitlines())).plain


Leave = Callable[[list[int]], bool]  # asked on an interruption: leave these jobs in the queue?


def start(what: Ready, *, tick: Tick | None = None, leave: Leave | None = None, warm: Warm | None = None) -> Record:
    try:
        since = None if what.began_t is None else Since(what.began_t, what.prepared.described_s, what.prepared.probed_s)
        record = run_to_record(what.rendered, tick=tick, since=since, warm=warm)
        what.prepared.descriptions.settle(record)
        write_page(record)
        return record
    except KeyboardInterrupt:
        settle([what.run], leave)
        raise


def submit(what: Ready) -> dict[str, Any]:
    """`--detach`: in the queue, and nobody waits for it. `paceline report` on the folder picks it up."""
    if not what.spec.in_queue:
        raise BadInput(
            f"--detach with launcher={what.spec.launcher}: only a job in a queue goes on without us; use a slurm+ launcher"
        )
    if queued.waits_for(what.run, what.spec):
        raise BadInput(f"{what.run.path}: {queued.waiting(what.run)}")
    job = queued.submit([what.rendered])
    if job is None:
        from paceline.records.record import load

        return load(what.run.path).plain
    return {
        "schema": 1,
        "outcome": "submitted",
        "why": None,
        "job": job,
        "run_dir": str(what.run.path),
        "spec": what.spec.plain(),
    }


def said_of(submitted: Mapping[str, Any]) -> str:
    if submitted["outcome"] != "submitted":
        return f"not submitted: {submitted['why']}"
    return (
        f"job {submitted['job']} is in the queue; `paceline report {submitted['run_dir']}` picks it up when it is over"
    )


def settle(runs: Iterable[RunDir], leave: Leave | None) -> None:
    """After an interruption: the jobs of these runs are cancelled, unless somebody says that they may go on."""
    waiting = [run for run in runs if run.submitted]
    numbers = sorted({queued.number_of(run) for run in waiting})
    if not numbers:
        return
    if leave is not None and leave(numbers):
        raise Interrupted(
            f"left in the queue: job {', '.join(map(str, numbers))}; the same command, or `paceline report`, picks up what they bring"
        )
    for run in waiting:
        if run.submitted:  # several runs may be in one job: the first cancels it for all
            queued.cancel(run)


def run(task: str | PathLike[str], *, out: str | PathLike[str] | None = None, **settings: Any) -> Record:
    """Train `task` (a built-in name or path/to/file.py[:Class]) and return its record.

    >>> record = paceline.run("my_task.py", on="1x2", epochs=5, hidden=64)  # doctest: +SKIP
    >>> record.test["accuracy"]  # doctest: +SKIP
    """
    asked = {name: value for name, value in settings.items() if value is not None}
    with warmed() as warm:
        return start(ready(os.fspath(task), asked, out=out, began_t=time.time(), warm=warm), warm=warm)
