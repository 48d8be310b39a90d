"""Two cells, one metric: the difference, its interval, and what may be said of it. It chooses no winner.

The rules, all of them here:
- Paired by repeat when a plan made both cells (a repeat is one seed and one block of time) and at least two common
  repeats share their seed; otherwise Welch.
- Fewer than three runs to compare: `too few runs`. Two differences give an interval with t = 12.7, which is worthless.
- A verdict needs p < 0.05 after false-discovery control over every comparison of the study, and an estimate beyond
  the practical size.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paceline.analysis import stats
from paceline.analysis.cells import values
from paceline.records.findings import ALPHA, MIN_RUNS, Comparison, Metric, Reason, Verdict
from paceline.records.study import CellRecord

Key = tuple[str, str, str, str, float, float]


@dataclass(frozen=True, slots=True)
class Question:
    """Is the candidate different from the baseline in this metric?"""

    metric: Metric
    baseline: CellRecord
    candidate: CellRecord
    against: str = ""  # the baseline's metric, where it is another one
    factor: float = 1.0  # of the baseline's

    @property
    def key(self) -> Key:
        cells = self.baseline.plan.label, self.candidate.plan.label
        return self.metric.name, *cells, self.against, self.factor, self.metric.size


@dataclass(frozen=True, slots=True)
class Sample:
    """The values that may be compared, baseline and candidate."""

    baseline: Sequence[float]
    candidate: Sequence[float]
    paired: bool

    @property
    def n(self) -> int:
        return min(len(self.baseline), len(self.candidate))


def _common(question: Question, baseline: Mapping[int, float], candidate: Mapping[int, float]) -> list[int]:
    """Repeats that both cells have under the same seed; none where nobody planned the order."""
    if not (question.baseline.plan.keys and question.candidate.plan.keys):
        return []
    seeds = {repeat: record.spec.get("seed") for repeat, record in question.baseline.completed}
    others = {repeat: record.spec.get("seed") for repeat, record in question.candidate.completed}
    return [repeat for repeat in baseline if repeat in candidate and seeds[repeat] == others[repeat]]


def sample(question: Question) -> Sample | None:
    """None where one side has no value, or where a ratio has no logarithm and its difference no meaning."""
    against = values(question.baseline, question.against or question.metric.name)
    baseline = {repeat: value * question.factor for repeat, value in against.items()}
    candidate = values(question.candidate, question.metric.name)
    if not baseline or not candidate:
        return None
    if question.metric.kind == "ratio" and min(*baseline.values(), *candidate.values()) < 0:
        return None
    common = _common(question, baseline, candidate)
    if len(common) >= 2:
        return Sample([baseline[r] for r in common], [candidate[r] for r in common], paired=True)
    return Sample(list(baseline.values()), list(candidate.values()), paired=False)


def measured_by(metric: Metric, of: Sample) -> Metric:
    """A ratio with nothing on one side (the 0 bytes of SGD's state) is told as a difference, of the same practical size."""
    if metric.kind == "ratio" and min(*of.baseline, *of.candidate) <= 0:
        return replace(metric, kind="difference", relative=True)
    return metric


def effect(metric: Metric, of: Sample) -> stats.Effect:
    measure = stats.ratio if metric.kind == "ratio" else stats.difference
    return measure(of.baseline, of.candidate, paired=of.paired)


def point(metric: Metric, of: Sample) -> float:
    """The estimate without an interval, for samples too small to have one."""
    mean = statistics.geometric_mean if metric.kind == "ratio" else statistics.fmean
    baseline, candidate = mean(of.baseline), mean(of.candidate)
    return candidate / baseline if metric.kind == "ratio" else candidate - baseline


def practical_size(metric: Metric, baseline: Sequence[float]) -> float:
    """How far from "the same" the estimate must lie to matter, on the scale it is measured on."""
    if metric.kind == "ratio":
        return math.log1p(metric.size)
    return metric.size * abs(statistics.fmean(baseline)) if metric.relative else metric.size


def on_scale(of: Metric | Comparison, value: float) -> float:
    """Signed distance from "the same": log for ratios, the value itself for differences."""
    return math.log(value) if of.kind == "ratio" else value


def _verdict(metric: Metric, direction: str) -> Verdict:
    if metric.better is None:
        return "higher" if direction == "higher" else "lower"
    good = direction == metric.better
    if metric.unit in ("s", "samples/s"):
        return "faster" if good else "slower"
    return "better" if good else "worse"


def _too_few(question: Question, of: Sample) -> Comparison:
    metric = measured_by(question.metric, of)
    return Comparison(
        *question.key[:3], metric.kind, point(metric, of), None, None, of.n, None, of.paired, "too few runs", "too few runs",
        practical_size(metric, of.baseline), question.against, question.factor,
    )  # fmt: skip


def concluded(metric: Metric, distance: float, *, raw: float, p: float, size: float) -> tuple[Verdict, Reason]:
    """What may be said of a distance on the metric's scale. `raw`: its p before it was adjusted for all that was asked."""
    if p >= ALPHA:
        return "no difference shown", "chance among many" if raw < ALPHA else "chance"
    if abs(distance) <= size:
        return "no difference shown", "small"
    return _verdict(metric, "higher" if distance > 0 else "lower"), "shown"


def _judge(question: Question, of: Sample, measured: stats.Effect, p: float) -> Comparison:
    metric = measured_by(question.metric, of)
    distance, size = on_scale(metric, measured.value), practical_size(metric, of.baseline)
    verdict, reason = concluded(metric, distance, raw=measured.p, p=p, size=size)
    return Comparison(
        *question.key[:3], metric.kind, measured.value, measured.low, measured.high, measured.n, p, of.paired, verdict, reason,
        size, question.against, question.factor,
    )  # fmt: skip


def answers(questions: Iterable[Question]) -> dict[Key, Comparison]:
    """All of them as one family, each once; a question that one side has no value for is left out."""
    unique = {question.key: question for question in questions}
    samples = [(question, of) for question in unique.values() if (of := sample(question)) is not None]
    tested = [(q, s, effect(measured_by(q.metric, s), s)) for q, s in samples if s.n >= MIN_RUNS]
    adjusted = stats.false_discovery([measured.p for _, _, measured in tested])
    judged = {q.key: _judge(q, s, measured, p) for (q, s, measured), p in zip(tested, adjusted, strict=True)}
    return {question.key: judged.get(question.key) or _too_few(question, of) for question, of in samples}


def compare(questions: Iterable[Question]) -> list[Comparison]:
    return list(answers(questions).values())


def find(comparisons: Iterable[Comparison], metric: str, baseline: str, candidate: str) -> Comparison | None:
    """The answer to one question, None where it was not asked."""
    wanted = (metric, baseline, candidate)
    return next((one for one in comparisons if (one.metric, one.baseline, one.candidate) == wanted), None)


def speedup(ratio: Comparison, metric: Metric) -> Comparison:
    """A ratio of times as a speed-up: baseline over candidate, so that more is faster."""
    if metric.better == "higher" or ratio.value is None:
        return ratio
    low = None if ratio.high is None else 1 / ratio.high
    high = None if ratio.low is None else 1 / ratio.low
    return replace(ratio, value=1 / ratio.value, low=low, high=high)
