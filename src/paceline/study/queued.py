"""Runs that wait in a Slurm queue: submitted, attended, picked up later, by any command: the run's folder holds the job's number."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.base.errors import RunFailed
from paceline.base.files import read_json, write_json, write_text
from paceline.launch.plan import LAUNCHERS
from paceline.launch.slurm import queue
from paceline.launch.slurm.attend import Attended
from paceline.launch.slurm.launchers import job_name
from paceline.launch.slurm.script import Section, render
from paceline.launch.supervise import Tick
from paceline.records.facts import TaskFacts
from paceline.records.gather import Ended
from paceline.records.layout import RunDir
from paceline.records.outcome import failed
from paceline.records.record import Record, load
from paceline.spec.run import Spec
from paceline.study.execute import check_room, conclude, held, help_out, make_room, run_once, write_down


@dataclass(frozen=True, slots=True)
class Wish:
    """One run to submit."""

    spec: Spec
    run: RunDir
    facts: TaskFacts | None = None


def waits_for(run: RunDir, spec: Spec) -> bool:
    """This very experiment was submitted, by this command or an earlier one, and its record is still to be made."""
    return run.submitted and Spec.model_validate(read_json(run.spec)).key() == spec.key()


def number_of(run: RunDir) -> int:
    return int(read_json(run.job("job.json"))["job"])


def submit(wishes: Sequence[Wish], *, after: int | None = None) -> int | None:
    """One job for these runs, in this order; its number. None when sbatch refused it: then every run has a record that says so."""
    for wish in wishes:
        check_room(wish.run)
        with held(wish.run):
            make_room(wish.run)
            write_down(wish.spec, wish.run, facts=wish.facts)
            write_text(wish.run.log("preflight", "err"), "")  # the job's shell needs the folders to be there
    first = wishes[0].run
    script = _script(wishes)
    write_text(first.job("script.sh"), script)
    submitted_t = time.time()
    try:
        job = queue.submit(first.job("script.sh"), folder=first.path, after=after)
    except RunFailed as error:
        for wish in wishes:
            said = Ended(submitted_t, 0.0, said=failed(error.kind, error.why))
            conclude(wish.spec, wish.run, LAUNCHERS.load(wish.spec.launcher)(), said)
        return None
    before: RunDir | None = None
    for wish in wishes:
        note = {"schema": 1, "job": job, "submitted_t": submitted_t, "after": str(before.path) if before else None}
        write_json(wish.run.job("job.json"), note)
        before = wish.run
    return job


def _script(wishes: Sequence[Wish]) -> str:
    sections: list[Section] = [LAUNCHERS.load(wish.spec.launcher)().section(wish.spec, wish.run) for wish in wishes]
    first = wishes[0]
    return render(sections, name=job_name(first.spec.task), log=first.run.job("job.log"))


def _attended(run: RunDir) -> Attended:
    note = read_json(run.job("job.json"))
    spec = Spec.model_validate(read_json(run.spec))
    return Attended(int(note["job"]), run, spec, RunDir(Path(note["after"])) if note["after"] else None)


def attend(run: RunDir, *, tick: Tick | None = None) -> Record:
    """Wait for a submitted run's end and make its record. An interruption leaves the job as it is: see `cancel`."""
    with held(run):
        return _concluded(_attended(run), tick)


def _concluded(job: Attended, tick: Tick | None = None) -> Record:
    ended = job.wait(tick)
    return conclude(job.spec, job.run, LAUNCHERS.load(job.spec.launcher)(), ended)


def cancel(run: RunDir) -> int:
    """End the job a run was submitted with; its number."""
    job = _attended(run)
    job.cancel()
    return job.job


def pick_up(root: Path) -> list[Record]:
    """The records of submitted runs below `root` whose jobs are over by now: nobody need have waited for them."""
    found: list[Record] = []
    for note in sorted(root.rglob("job/job.json")):
        run = RunDir(note.parent.parent)
        if run.submitted and (run.job("ended").exists() or queue.state(_attended(run).job).over):
            with held(run):
                found.append(_concluded(_attended(run)))
    return found


def once(spec: Spec, run: RunDir, *, tick: Tick | None = None, facts: TaskFacts | None = None) -> Record:
    """One run to its record, wherever it runs: in a job, as one machine of several, or here."""
    if spec.in_queue:
        if not waits_for(run, spec) and submit([Wish(spec, run, facts)]) is None:
            return load(run.path)
        return attend(run, tick=tick)
    if spec.machine:
        return help_out(spec, run, tick=tick)
    return run_once(spec, run, tick=tick, facts=facts)
