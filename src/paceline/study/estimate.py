"""How long a study will probably take: from its own finished runs, or from one short trial. It says which."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.base.files import remove_file
from paceline.launch.warm import Warm
from paceline.records.layout import StudyDir
from paceline.records.record import Record, load
from paceline.spec.axes.launchers import LAUNCHERS
from paceline.spec.run import Spec
from paceline.spec.steps import num_evaluations, num_steps
from paceline.study.dispatch import run_to_record
from paceline.study.execute import needs_compiler, render

TRIAL_STEPS = 30


@dataclass(frozen=True, slots=True)
class Outlook:
    """Seconds for each cell's one run; None where nothing is known."""

    seconds: dict[str, float]
    how: str

    def of(self, labels: Sequence[str]) -> float | None:
        if not all(label in self.seconds for label in labels):
            return None
        return sum(self.seconds[label] for label in labels)


def from_runs(done: Mapping[str, Sequence[Record]]) -> dict[str, float]:
    """The mean wall time of each cell's completed runs."""
    known = {label: [record.duration_s for record in records if record.completed] for label, records in done.items()}
    return {label: statistics.fmean(walls) for label, walls in known.items() if walls}


def from_trial(trial: Record, specs: Mapping[str, Spec]) -> dict[str, float]:
    """Start-up once, as many evaluations as there will be, and every sample at the trial's pace; scaling is not guessed at."""
    if not trial.completed or not trial.throughput or trial.time is None:
        return {}
    parts, num = trial.time.parts or {}, int(trial.train.of or 0)
    startup, evaluation = (parts.get("startup") or 0.0) + (parts.get("shutdown") or 0.0), parts.get("evaluation") or 0.0
    seconds: dict[str, float] = {}
    for label, spec in specs.items():
        training_s = num_steps(spec, num) * spec.batch / trial.throughput
        seconds[label] = startup + training_s + num_evaluations(spec, num) * evaluation
    return seconds


def outlook(
    folder: StudyDir, specs: Mapping[str, Spec], done: Mapping[str, Sequence[Record]], *, baseline: str, warm: Warm | None = None
) -> Outlook:  # fmt: skip
    known = from_runs(done)
    if set(known) >= set(specs):
        return Outlook(known, "from the runs that are done")
    if specs[baseline].in_queue:  # a trial would wait in the queue like any run, and hold up what it is meant to plan
        return Outlook(known, "unknown until every cell has run once in the queue")
    if specs[baseline].profile != "none":  # a profile of fewer batches is no shorter: its start is most of it
        return Outlook(known, "unknown until every cell has run once")
    short = specs[baseline].of_steps(TRIAL_STEPS)
    run = folder.trial
    trial = load(run.path) if run.finished else None
    if trial is None or trial.key != short.key():
        remove_file(run.result)  # the trial of another matrix: it gives way
        if warm is not None and LAUNCHERS[short.launcher].forks_warm:
            warm.ready(graphs=needs_compiler(short))  # its start is the command's, and no run's
        trial = run_to_record(render(short, run), warm=warm)
    guessed = from_trial(trial, specs)
    how = f"from a trial of {TRIAL_STEPS} steps" + (" and the runs that are done" if known else "")
    return Outlook({**guessed, **known}, how if guessed else "unknown: the trial did not complete")


def repeats_for(budget_s: float, block_s: float) -> int:
    """Whole blocks that fit; never less than one."""
    return max(1, int(budget_s // block_s))
