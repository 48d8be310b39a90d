"""The line on top: what to use and why, or that nothing is shown. It reads verdicts; it never softens one.

Time to target decides where a target was set and some cell reached it in every run; training time where it shows nothing
or there is no target. The fastest of the cells shown to be faster than the baseline is named; a worse score is said in the same breath.
A study of profiles has no times to choose by: there the first figure it asks about is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.analysis.compare import MIN_RUNS, Question, compare, find, on_scale, size_in_words, speedup
from paceline.analysis.metrics import TO_TARGET, TRAINING
from paceline.analysis.payback import steps_in_words
from paceline.records.findings import CellFinding, Comparison, Interval, Metric, Missing, Payback
from paceline.records.study import CellRecord, StudyRecord

PROFILE = "profile."
QUICK = "Quick study: scaled down, not evidence for the full size."


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


def _range(low: float | None, high: float | None, n: int, digits: str) -> str:
    if low is None or high is None:
        return f"(n = {n})"
    return f"(95 % interval {low:{digits}} to {high:{digits}}, n = {n})"


def _seconds(figure: Interval) -> str:
    return f"{figure.mean:.3g} s {_range(figure.low, figure.high, figure.n, '.3g')}"


def _target(evidence: Evidence) -> str:
    return f"{evidence.score.title if evidence.score else 'the target'} {evidence.target:g}"


def _nothing_completed(cells: Sequence[CellFinding]) -> str:
    count = Counter(cell.outcome for cell in cells)
    return f"Nothing is shown: no run completed ({', '.join(f'{n} {outcome}' for outcome, n in count.items())})."


def _one_cell(cell: CellFinding, evidence: Evidence) -> str:
    words = [f"{cell.label} trains in {_seconds(cell.metrics[TRAINING])}"] if TRAINING in cell.metrics else []
    if evidence.score and (figure := cell.metrics.get(evidence.score.name)):
        shown = f"{figure.mean * 100:.2f} %" if evidence.score.unit == "fraction" else f"{figure.mean:.4g}"
        words.append(f"{evidence.score.title} {shown}")
    others = len(evidence.cells) - 1
    only = "only one cell completed a run" if others else "there is one cell"
    return f"Nothing to compare: {only}. {', '.join(words)}{'.' if words else ''}".strip()


def _score_clause(label: str, evidence: Evidence) -> tuple[bool, str]:
    """(is it worse, what to say of the score)."""
    score = evidence.score
    found = find(evidence.comparisons, score.name, evidence.baseline, label) if score else None
    if score is None or found is None or found.value is None:
        return False, "no score to compare"
    scale, unit, digits = (100, " points", "+.2f") if score.unit == "fraction" else (1, "", "+.3g")
    low, high = (None if v is None else v * scale for v in (found.low, found.high))
    by = f"{found.value * scale:{digits}}{unit} {_range(low, high, found.n, digits)}"
    if found.verdict in ("no difference shown", "too few runs"):
        return False, f"{found.verdict} in {score.title}: {by}"
    return found.verdict == "worse", f"{score.title} is {found.verdict}: {by}"


def _runner_up(best: Comparison, metric: Metric, evidence: Evidence) -> str:
    """The second in line, if it cannot be told from the first; asked as a question of its own."""
    others = [c for c in evidence.against_baseline(metric) if c.candidate != best.candidate and c.value is not None]
    if not others:
        return ""
    second = min(others, key=lambda c: c.value or 0.0).candidate
    between = compare([Question(metric, evidence.record(best.candidate), evidence.record(second))])
    if between and between[0].verdict == "slower":
        return ""
    return f" Not shown to differ from the runner-up, {second}."


def _speed(found: Comparison, metric: Metric, evidence: Evidence) -> str:
    fast = speedup(found, metric)
    goal = f" to {_target(evidence)}" if metric.name == TO_TARGET else ""
    verb = "" if goal else "trains "
    return f"{verb}{fast.value:.2f}x as fast as {found.baseline}{goal} {_range(fast.low, fast.high, fast.n, '.2f')}"


def _fastest(faster: Sequence[Comparison], metric: Metric, evidence: Evidence) -> str:
    best, *rest = sorted(faster, key=lambda c: c.value or 0.0)
    worse, score = _score_clause(best.candidate, evidence)
    speed = _speed(best, metric, evidence)
    if not worse:
        return f"Use {best.candidate}: {speed}; {score}.{_runner_up(best, metric, evidence)}"
    safe = next((c for c in rest if not _score_clause(c.candidate, evidence)[0]), None)
    if safe is None:
        choice = f"No cell is shown to be faster than {best.baseline} without a worse score."
        return f"{choice} Fastest is {best.candidate}: {speed}, but {score}."
    _, safe_score = _score_clause(safe.candidate, evidence)
    choice = f"Use {safe.candidate}: {_speed(safe, metric, evidence)}; {safe_score}."
    return f"{choice} {best.candidate} is faster still ({speed}), but {score}."


def _none_faster(against: Sequence[Comparison], metric: Metric, baseline: str) -> str:
    if not against:
        return f"Nothing to compare: no cell but {baseline} has a {metric.title}."
    told = [c for c in against if c.verdict != "too few runs"]
    if not told:
        n = min((c.n for c in against), default=0)
        return f"Nothing is shown: too few runs (n = {n}; a verdict needs {MIN_RUNS})."
    slower = sorted((c for c in told if c.verdict == "slower"), key=lambda c: c.value or 0.0)
    if slower:
        near = slower[0]
        which = f", the nearest of {len(slower)} shown to be slower," if len(slower) > 1 else ""
        took = f"{near.candidate}{which} takes {near.value:.2f}x its {metric.title}"
        others = "" if len(slower) == len(told) else f" {len(told) - len(slower)} others are not shown to differ."
        return f"Keep {baseline}: {took} {_range(near.low, near.high, near.n, '.2f')}.{others}"
    n = min(c.n for c in told)
    return (
        f"Nothing is shown: no cell differs from {baseline} in {metric.title} by more than "
        f"chance and the practical size of {size_in_words(metric)} (n = {n})."
    )


def _without_baseline(metric: Metric, evidence: Evidence) -> str:
    """The baseline has no such figure (it failed, or never reached the target): the others can only be ranked."""
    to_target = metric.name == TO_TARGET
    why = "did not reach it in every run" if to_target else "has no completed run"
    does = f"reaches {_target(evidence)}" if to_target else "trains"
    enough = [c for c in evidence.cells if metric.name in c.metrics and c.metrics[metric.name].n >= MIN_RUNS]
    if not enough:
        return f"Nothing is shown: the baseline {evidence.baseline} {why}, and no other cell has {MIN_RUNS} runs."
    first, *rest = sorted(enough, key=lambda c: c.metrics[metric.name].mean)
    took = _seconds(first.metrics[metric.name])
    text = f"Use {first.label}: {does} in {took}; the baseline {evidence.baseline} {why}."
    if not rest:
        return text
    between = compare([Question(metric, evidence.record(first.label), evidence.record(rest[0].label))])
    shown = bool(between) and between[0].verdict == "slower"
    return text if shown else f"{text} Not shown to differ from the runner-up, {rest[0].label}."


def _missed(evidence: Evidence) -> str:
    missed = [c for c in evidence.cells if c.reached is not None and c.reached < c.n]
    if not missed:
        return ""
    told = ", ".join(f"{c.label} ({c.reached} of {c.n} runs)" for c in missed)
    return f" Not candidates, because not every run reached {_target(evidence)}: {told}."


def _deciding(evidence: Evidence, *, reached: bool) -> tuple[Metric | None, str]:
    """(the metric that decides, what to say before it): training time has the word where time to target shows nothing."""
    first, second = evidence.metrics.get(TO_TARGET), evidence.metrics.get(TRAINING)
    if not reached or first is None:
        return second, ""
    told = [
        m is not None and any(c.verdict in ("faster", "slower") for c in evidence.against_baseline(m))
        for m in (first, second)
    ]
    has_it = any(cell.label == evidence.baseline and first.name in cell.metrics for cell in evidence.cells)
    if has_it and told == [False, True]:
        return second, f"No difference shown in {first.title}; by training time: "
    return first, ""


def _asked_about(evidence: Evidence, done: Sequence[CellFinding]) -> Metric | None:
    """Of a study of profiles, the figure to compare: what its conclusions or quoted figures are about, else the first all cells have."""
    plan = evidence.study.plan
    quoted = [wanted.metric for wanted in plan.conclusions] + [name for cell in plan.cells for name in cell.reference]
    named = [evidence.metrics[name] for name in (*quoted, *evidence.metrics) if name in evidence.metrics]
    profiled = [metric for metric in named if metric.name.startswith(PROFILE) and metric.compared]
    return next((metric for metric in profiled if all(metric.name in cell.metrics for cell in done)), None)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _by(found: Comparison, metric: Metric) -> str:
    """How far a cell's figure is from the baseline's."""
    assert found.value is not None
    if metric.kind == "ratio":
        return f"{found.value:.2f}x {found.baseline} {_range(found.low, found.high, found.n, '.2f')}"
    scale, unit, digits = (100, " points", "+.1f") if metric.unit == "fraction" else (1, "", "+.3g")
    low, high = (None if value is None else value * scale for value in (found.low, found.high))
    return f"{found.value * scale:{digits}}{unit} from {found.baseline} {_range(low, high, found.n, digits)}"


def _profiled(evidence: Evidence, done: Sequence[CellFinding]) -> str:
    """A profiler slows what it watches: only shares and parts of what it saw can be compared."""
    metric = _asked_about(evidence, done)
    if metric is None:
        titles = [m.title for name, m in evidence.metrics.items() if name.startswith(PROFILE)]
        return f"Profiles of {len(done)} cells, with no figure that all have: {', '.join(titles[:4]) or 'nothing was measured'}."
    if len(done) == 1:
        figure = done[0].metrics[metric.name]
        scale, unit = (100, " %") if metric.unit == "fraction" else (1, f" {metric.unit}" if metric.unit else "")
        shown = f"{done[0].label} {figure.mean * scale:.3g}{unit} (n = {figure.n})"
        return f"Nothing to compare: one cell was profiled. {_sentence(metric.title)}: {shown}."
    against = evidence.against_baseline(metric)
    shown = [c for c in against if c.verdict not in ("no difference shown", "too few runs") and c.value is not None]
    if not shown:
        return _none_faster(against, metric, evidence.baseline)
    most = max(shown, key=lambda c: abs(on_scale(metric, c.value or 1.0)))
    others = [f"{c.candidate} {c.verdict}" for c in shown if c is not most]
    silent = len(against) - len(shown)
    text = f"{_sentence(metric.title)}: {most.candidate} is {_by(most, metric)}"
    text += f"; {', '.join(others)}" if others else ""
    text += f"; {silent} not shown to differ" if silent else ""
    return f"{text}. These are profiles: nothing is said of how fast a cell trains."


def _scaled(rows: Sequence[Missing]) -> str:
    """Why the largest topology is not as fast as its processes, if that is clear."""
    clear = [row for row in rows if row.cause is not None]
    if not clear:
        return ""
    row = max(clear, key=lambda row: row.ideal)
    return f" Why {row.label} is {row.speedup:.2f}x as fast and not {row.ideal:g}x: {row.answer[:1].lower()}{row.answer[1:]}"


def _paid_back(rows: Sequence[Payback]) -> str:
    """The graph that is paid back soonest, if any is shown to be; of too few runs nothing is."""
    if not rows:
        return ""
    paid = [(row.steps, row) for row in rows if row.steps is not None and row.verdict == "paid back"]
    if not paid:
        return " No graph is shown to be paid back."
    steps, row = min(paid, key=lambda item: item[0].mean)
    return f" Soonest paid back: {row.label}, after {steps_in_words(steps)} steps."


def headline(evidence: Evidence) -> str:
    done = [cell for cell in evidence.cells if cell.n]
    reached = evidence.target is not None and any(TO_TARGET in cell.metrics for cell in done)
    metric, before = _deciding(evidence, reached=reached)
    if not done:
        text = _nothing_completed(evidence.cells)
    elif metric is None and any(name.startswith(PROFILE) for name in evidence.metrics):
        text = _profiled(evidence, done)
    elif len(done) == 1 or metric is None:
        text = _one_cell(done[0], evidence)
    elif not any(cell.label == evidence.baseline and metric.name in cell.metrics for cell in done):
        text = _without_baseline(metric, evidence)
    else:
        against = evidence.against_baseline(metric)
        faster = [c for c in against if c.verdict == "faster"]
        choice = _fastest(faster, metric, evidence) if faster else _none_faster(against, metric, evidence.baseline)
        text = before + (choice[:1].lower() + choice[1:] if before else choice)
    if reached:
        text += _missed(evidence)
    elif evidence.target is not None and len(done) > 1:
        text += f" No cell reached {_target(evidence)} in every run, so training time decides."
    text += _scaled(evidence.missing) + _paid_back(evidence.payback)
    return f"{text} {QUICK}" if evidence.study.plan.quick and done else text
