"""Runs in a Slurm queue: submitted, waited for, or picked up later by any command, because a run's folder holds its
job's number."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import read_json, remove_file, write_json, write_text
from paceline.launch.command import uninterrupted
from paceline.launch.plan import LAUNCHERS
from paceline.launch.slurm import queue
from paceline.launch.slurm.launchers import job_name
from paceline.launch.slurm.script import Section, render
from paceline.launch.slurm.wait import WaitedJob
from paceline.launch.supervise import Tick
from paceline.records.judge import Ended
from paceline.records.layout import RunDir
from paceline.records.outcome import failed
from paceline.spec.run import Spec
from paceline.study.execute import RenderedRun, claimed, conclude, held, write_down

if TYPE_CHECKING:
    from paceline.records.record import Record


def waits_for(run: RunDir, spec: Spec) -> bool:
    """This experiment was submitted, by this command or an earlier one, and has no record yet."""
    return run.submitted and Spec.model_validate(read_json(run.spec)).key() == spec.key()


def number_of(run: RunDir) -> int:
    return int(read_json(run.job("job.json"))["job"])


def submit(runs: Sequence[RenderedRun], *, after: int | None = None) -> int | None:
    """One job for these runs, in this order; its number. None when sbatch refused it: then every run has a record that says so.

    The folders are ours until the job's number is in them: a second command would clear them under the job.
    """
    with contextlib.ExitStack() as stack:
        for rendered in runs:
            stack.enter_context(claimed(rendered.run))
            write_down(rendered)
            write_text(rendered.run.log("preflight", "err"), "")  # the job's shell needs the folders to be there
        first = runs[0].run
        write_text(first.job("script.sh"), _script(runs))
        submitted_t = time.time()
        try:
            with uninterrupted():
                job = queue.submit(first.job("script.sh"), log=first.job("job.log"), after=after)
                _note(runs, job, submitted_t)
        except RunFailed as error:
            for rendered in runs:
                ended = Ended(submitted_t, 0.0, said=failed(error.kind, error.why))
                conclude(rendered.spec, rendered.run, rendered.launcher, ended)
            return None
    return job


def _note(runs: Sequence[RenderedRun], job: int, submitted_t: float) -> None:
    """In each folder: the job, and the other runs in it, in order."""
    together = [str(rendered.run.path) for rendered in runs]
    for rendered in runs:
        write_json(
            rendered.run.job("job.json"), {"schema": 1, "job": job, "submitted_t": submitted_t, "runs": together}
        )


def _script(runs: Sequence[RenderedRun]) -> str:
    """Of one run the one in its plan; of several a section each."""
    if len(runs) == 1 and runs[0].plan.script is not None:
        return runs[0].plan.script
    launchers: list[Any] = [rendered.launcher for rendered in runs]
    sections: list[Section] = [
        launcher.section(rendered.spec, rendered.run) for launcher, rendered in zip(launchers, runs, strict=True)
    ]
    return render(sections, name=job_name(runs[0].spec.task))


def _together(run: RunDir) -> list[RunDir]:
    """The runs of its job, in order; only this one where its folder was moved since, and the others cannot be
    located."""
    runs = [RunDir(Path(path)) for path in read_json(run.job("job.json"))["runs"]]
    return runs if run.path.resolve() in [other.path for other in runs] else [run]


def _waited_job(run: RunDir) -> WaitedJob:
    together = _together(run)
    index = next(i for i, other in enumerate(together) if other.path in (run.path, run.path.resolve()))
    specs = [Spec.model_validate(read_json(other.spec)) for other in together if other.spec.exists()]
    return WaitedJob(
        number_of(run), run, Spec.model_validate(read_json(run.spec)), after=together[index - 1] if index else None,
        largest=max(specs, key=lambda spec: (spec.topology.machines, spec.topology.processes)), packed=len(together) > 1,
    )  # fmt: skip


def wait(run: RunDir, *, tick: Tick | None = None) -> Record:
    """Wait for a submitted run's end and make its record. An interruption leaves the job as it is: see `cancel`."""
    with held(run):
        return _concluded(_waited_job(run), tick)


def _concluded(job: WaitedJob, tick: Tick | None = None) -> Record:
    ended = job.wait(tick)
    rest = [other for other in _together(job.run) if other.path != job.run.path.resolve()]
    record = conclude(job.spec, job.run, LAUNCHERS.load(job.spec.launcher)(), ended)
    if job.cancelled:  # by us, because of this run: those packed behind it were not run, and are not to blame
        _forget(rest)
    return record


def _forget(runs: Sequence[RunDir]) -> None:
    """Removes an attempt whose job we cancelled, like any unfinished one."""
    for run in runs:
        if run.submitted and not run.job("ended").exists():
            remove_file(run.job("job.json"))


def cancel(run: RunDir) -> None:
    """End the job a run was submitted with, and forget it: the next command starts anew."""
    together = _together(run)
    _waited_job(run).cancel()
    _forget(together)


def pick_up(root: Path) -> list[Record]:
    """The records of submitted runs below `root` whose jobs are over by now: nobody need have waited for them."""
    records: list[Record] = []
    over: dict[int, bool] = {}
    for note in sorted(root.rglob("job/job.json")):
        run = RunDir(note.parent.parent)
        if not run.submitted:
            continue
        number = number_of(run)
        if run.job("ended").exists() or over.setdefault(number, queue.state(number).over):
            with contextlib.suppress(BadInput), held(run):  # held by another command: that one makes the record
                if run.submitted:
                    records.append(_concluded(_waited_job(run)))
    return records


def waiting(run: RunDir) -> str:
    """The state of a submitted run's job, for a command that comes before its end."""
    number = number_of(run)
    state = queue.state(number)
    why = f" ({state.reason})" if state.reason else ""
    return f"job {number} is {state.word}{why}; there is nothing to report yet"
