"""What the line on top concludes: what to use and why, or that nothing is shown. It reads verdicts; it never softens one.

Time to target decides where a target was set and some cell reached it in every run; training time where it shows nothing
or there is no target. The fastest of the cells shown to be faster than the baseline is named, with what became of its score.
A study of profiles has no times to choose by: there the first figure it asks about is compared. Where the score differs between
cells, or a setting is swept that may change it, that is said beside the speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.analysis.compare import Question, compare, find, on_scale, speedup
from paceline.analysis.metrics import TO_TARGET, TRAINING
from paceline.records.findings import MIN_RUNS, CellFinding, Comparison, Metric, Missing, Payback
from paceline.records.headline import (
    Choice,
    Fastest,
    Headline,
    KeepBaseline,
    Main,
    NoDifference,
    NoFigure,
    NothingCompleted,
    OneCell,
    OneProfile,
    ProfilesApart,
    ProfilesDiffer,
    RankedOnly,
    Scores,
    TooFewRuns,
)  # fmt: skip
from paceline.records.study import CellRecord, StudyRecord
from paceline.spec.settings import NOT_THE_RESULT

PROFILE = "profile."
_SILENT = ("no difference shown", "too few runs")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything the headline may use."""

    study: StudyRecord
    cells: Sequence[CellFinding]
    comparisons: Sequence[Comparison]
    metrics: Mapping[str, Metric]
    score: Metric | None
    target: float | None
    missing: Sequence[Missing] = ()
    payback: Sequence[Payback] = ()

    @property
    def baseline(self) -> str:
        return self.study.plan.baseline

    def record(self, label: str) -> CellRecord:
        return next(cell for cell in self.study.cells if cell.plan.label == label)

    def against_baseline(self, metric: Metric) -> list[Comparison]:
        return [c for c in self.comparisons if c.metric == metric.name and c.baseline == self.baseline]


def _slower(metric: Metric, first: str, second: str, evidence: Evidence) -> bool:
    """Whether the second is shown to be slower than the first; asked as a question of its own."""
    answers = compare([Question(metric, evidence.record(first), evidence.record(second))])
    return bool(answers) and answers[0].verdict == "slower"


def _choice(ratio: Comparison, metric: Metric, evidence: Evidence) -> Choice:
    score = evidence.score
    compared = find(evidence.comparisons, score.name, evidence.baseline, ratio.candidate) if score else None
    return Choice(speedup(ratio, metric), compared if compared and compared.value is not None else None)


def _fastest(faster: Sequence[Comparison], metric: Metric, evidence: Evidence) -> Fastest:
    best, *rest = (_choice(c, metric, evidence) for c in sorted(faster, key=lambda c: c.value or 0.0))
    if best.worse:
        return Fastest(metric, best, safe=next((choice for choice in rest if not choice.worse), None))
    others = [c for c in evidence.against_baseline(metric) if c.candidate != best.label and c.value is not None]
    second = min(others, key=lambda c: c.value or 0.0).candidate if others else None
    alike = second is not None and not _slower(metric, best.label, second, evidence)
    return Fastest(metric, best, runner_up=second if alike else None)


def _none_faster(against: Sequence[Comparison], metric: Metric) -> NoFigure | TooFewRuns | KeepBaseline | NoDifference:
    if not against:
        return NoFigure(metric)
    told = [c for c in against if c.verdict != "too few runs"]
    if not told:
        return TooFewRuns(min(c.n for c in against))
    slower = sorted((c for c in told if c.verdict == "slower"), key=lambda c: c.value or 0.0)
    if slower:
        return KeepBaseline(metric, slower[0], len(slower), len(told) - len(slower))
    return NoDifference(metric, min(c.n for c in told))


def _without_baseline(metric: Metric, evidence: Evidence) -> RankedOnly:
    """The baseline has no such figure (it failed, or never reached the target): the others can only be ranked."""
    enough = [c for c in evidence.cells if metric.name in c.metrics and c.metrics[metric.name].n >= MIN_RUNS]
    if not enough:
        return RankedOnly(metric)
    first, *rest = sorted(enough, key=lambda c: c.metrics[metric.name].mean)
    alike = bool(rest) and not _slower(metric, first.label, rest[0].label, evidence)
    return RankedOnly(metric, first, rest[0].label if alike else None)


def _deciding(evidence: Evidence, *, reached: bool) -> tuple[Metric | None, Metric | None]:
    """(the metric that decides, the one that should have): training time decides where time to target shows nothing."""
    first, second = evidence.metrics.get(TO_TARGET), evidence.metrics.get(TRAINING)
    if not reached or first is None:
        return second, None
    told = [
        m is not None and any(c.verdict in ("faster", "slower") for c in evidence.against_baseline(m))
        for m in (first, second)
    ]
    has_it = any(cell.label == evidence.baseline and first.name in cell.metrics for cell in evidence.cells)
    if has_it and told == [False, True]:
        return second, first
    return first, None


def _asked_about(evidence: Evidence, done: Sequence[CellFinding]) -> Metric | None:
    """Of a study of profiles, the figure to compare: what its conclusions or quoted figures are about, else the first all cells have."""
    plan = evidence.study.plan
    quoted = [wanted.metric for wanted in plan.conclusions] + [name for cell in plan.cells for name in cell.reference]
    named = [evidence.metrics[name] for name in (*quoted, *evidence.metrics) if name in evidence.metrics]
    profiled = [metric for metric in named if metric.name.startswith(PROFILE) and metric.compared]
    return next((metric for metric in profiled if all(metric.name in cell.metrics for cell in done)), None)


def _profiled(evidence: Evidence, done: Sequence[CellFinding]) -> Main:
    """A profiler slows what it watches: only shares and parts of what it saw can be compared."""
    metric = _asked_about(evidence, done)
    if metric is None:
        return ProfilesApart(len(done), tuple(m for name, m in evidence.metrics.items() if name.startswith(PROFILE)))
    if len(done) == 1:
        return OneProfile(done[0].label, metric, done[0].metrics[metric.name])
    against = evidence.against_baseline(metric)
    shown = [c for c in against if c.verdict not in _SILENT and c.value is not None]
    if not shown:
        return _none_faster(against, metric)
    most = max(shown, key=lambda c: abs(on_scale(metric, c.value or 1.0)))
    return ProfilesDiffer(metric, most, tuple(c for c in shown if c is not most), len(against) - len(shown))


def _main(evidence: Evidence, done: Sequence[CellFinding], metric: Metric | None) -> Main:
    if not done:
        return NothingCompleted(dict(Counter(cell.outcome for cell in evidence.cells)))
    if metric is None and any(name.startswith(PROFILE) for name in evidence.metrics):
        return _profiled(evidence, done)
    if len(done) == 1 or metric is None:
        return OneCell(done[0], len(evidence.cells) - 1)
    if not any(cell.label == evidence.baseline and metric.name in cell.metrics for cell in done):
        return _without_baseline(metric, evidence)
    against = evidence.against_baseline(metric)
    faster = [c for c in against if c.verdict == "faster"]
    return _fastest(faster, metric, evidence) if faster else _none_faster(against, metric)


def _changes_result(study: StudyRecord) -> bool:
    """Whether cells differ in a setting or a parameter of the task that may change what is learned."""
    specs = [cell.plan.spec for cell in study.cells]
    names = dict.fromkeys(name for spec in specs for name in spec if name not in NOT_THE_RESULT)
    return any(spec.get(name) != specs[0].get(name) for name in names for spec in specs[1:])


def _scores(main: Main, evidence: Evidence, done: Sequence[CellFinding]) -> Scores | None:
    """Who sweeps a setting that changes the score must not read of speed alone; and a score that differs is always said."""
    metric = evidence.score
    if metric is None or not isinstance(
        main, Fastest | NoFigure | TooFewRuns | KeepBaseline | NoDifference | RankedOnly
    ):
        return None
    told = [c for c in evidence.against_baseline(metric) if c.verdict != "too few runs" and c.value is not None]
    shown = [c for c in told if c.verdict not in _SILENT]
    if isinstance(main, Fastest):
        said = {choice.label for choice in (main.best, main.safe) if choice is not None}
        shown = [c for c in shown if c.verdict == "better" and c.candidate not in said]
    shown.sort(key=lambda c: (c.verdict != "better", -abs(c.value or 0.0)))
    n = min((c.n for c in told), default=0)
    if shown:
        return Scores(metric, n, tuple(shown))
    if isinstance(main, Fastest) or not _changes_result(evidence.study):
        return None
    if told:
        return Scores(metric, n)
    scored = sorted((c for c in done if metric.name in c.metrics), key=lambda c: c.metrics[metric.name].mean)
    return Scores(metric, n, ends=(scored[0], scored[-1])) if len(scored) > 1 else None


def headline(evidence: Evidence) -> Headline:
    done = [cell for cell in evidence.cells if cell.n]
    reached = evidence.target is not None and any(TO_TARGET in cell.metrics for cell in done)
    metric, silent = _deciding(evidence, reached=reached)
    missed = [c for c in evidence.cells if c.reached is not None and c.reached < c.n]
    clear = [row for row in evidence.missing if row.cause is not None]
    paid = [(row.steps.mean, row) for row in evidence.payback if row.steps is not None and row.verdict == "paid back"]
    main = _main(evidence, done, metric)
    return Headline(
        main,
        silent=silent if isinstance(main, Fastest | NoFigure | TooFewRuns | KeepBaseline | NoDifference) else None,
        scores=_scores(main, evidence, done),
        missed=tuple(missed) if reached else (),
        target_missed=not reached and evidence.target is not None and len(done) > 1,
        slow=max(clear, key=lambda row: row.ideal, default=None),
        paid_back=min(paid, key=lambda item: item[0])[1] if paid else None,
    )
