"""Two swept settings, every value of one with every value of the other: what each is worth, and whether that depends on the other.

The rules, all of them here:
- Repeat by repeat (one seed and one block of time), over the repeats that every cell has: so every cell counts the same, and what a
  block does to all cells falls out. A cell without any leaves a gap, and then nothing is computed.
- Times and rates on the log scale: effects are ratios of geometric means, an interaction is a ratio of ratios. Scores: differences.
- All of them are one family: verdicts need p < 0.05 after false-discovery control over it, and an estimate beyond the practical size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paceline.analysis import stats
from paceline.analysis.cells import planned, values
from paceline.analysis.compare import concluded, practical_size
from paceline.analysis.metrics import TO_TARGET, TRAINING
from paceline.records.findings import MIN_RUNS, Metric, Reason, Verdict
from paceline.records.grid import Grid, Interaction, MainEffect, Worth
from paceline.records.study import CellRecord, StudyRecord

Row = list[float]  # a value a repeat


@dataclass(frozen=True, slots=True)
class Laid:
    """The cells in rows and columns; the baseline's values come first."""

    settings: tuple[str, str]
    levels: tuple[list[str], list[str]]
    cells: dict[tuple[str, str], CellRecord]


@dataclass(frozen=True, slots=True)
class Asked:
    """One contrast, on the scale it is measured on: `there` against `here`, repeat by repeat."""

    metric: Metric
    here: Row
    there: Row
    size: float  # the practical size
    of: str
    against: str
    over: tuple[str, ...] = ()  # of a main effect
    at: tuple[str, str] | None = None  # of an interaction


def grid(study: StudyRecord, metrics: Mapping[str, Metric], score: Metric | None) -> Grid | None:
    """None where the study is no full grid of two settings, or has no times to tell apart."""
    laid = _laid(study)
    cells = () if laid is None else tuple(laid.cells.values())
    time = next((metrics[n] for n in (TO_TARGET, TRAINING) if n in metrics and any(values(c, n) for c in cells)), None)
    if laid is None or time is None:
        return None
    common = _common(cells, time.name)
    lacking = tuple(c.plan.label for c in cells if len(values(c, time.name)) < max(1, planned(c)))
    if not common:
        return Grid(settings=laid.settings, lacking=lacking)
    asked = [question for metric in (time, score) if metric is not None for question in _questions(laid, metric)]
    effects, interactions = _answers(asked)
    return Grid(settings=laid.settings, lacking=lacking, effects=effects, interactions=interactions)


def _laid(study: StudyRecord) -> Laid | None:
    if study.loose or len(study.plan.swept) != 2:
        return None
    first, second = study.plan.swept
    cells = {(str(c.plan.settings.get(first)), str(c.plan.settings.get(second))): c for c in study.cells}
    base = next((place for place, cell in cells.items() if cell.plan.label == study.plan.baseline), None)
    if base is None:
        return None
    rows, columns = (list(dict.fromkeys([base[i], *(place[i] for place in cells)])) for i in (0, 1))
    full = min(len(rows), len(columns)) > 1 and len(cells) == len(study.cells) == len(rows) * len(columns)
    return Laid((first, second), (rows, columns), cells) if full else None


def _common(cells: Sequence[CellRecord], metric: str) -> list[int]:
    """Repeats that every cell has a figure of, under the same seed."""
    figures = [values(cell, metric) for cell in cells]
    seeds = [{repeat: record.spec.get("seed") for repeat, record in cell.completed} for cell in cells]
    shared = [repeat for repeat in figures[0] if all(repeat in one for one in figures)]
    return [repeat for repeat in shared if len({seed[repeat] for seed in seeds}) == 1]


def _questions(laid: Laid, metric: Metric) -> list[Asked]:
    """Every value against the baseline's, and every pair of such steps; none where the figures are not all there."""
    common = _common(tuple(laid.cells.values()), metric.name)
    found = {place: [values(cell, metric.name)[repeat] for repeat in common] for place, cell in laid.cells.items()}
    of_ratio = metric.kind == "ratio"
    if not common or (of_ratio and min(map(min, found.values())) <= 0):
        return []
    y = {place: [math.log(value) for value in row] if of_ratio else row for place, row in found.items()}
    size = practical_size(metric, found[laid.levels[0][0], laid.levels[1][0]])
    return [*_each(laid, metric, y, size), *_both(laid, metric, y, size)]


def _each(laid: Laid, metric: Metric, y: Mapping[tuple[str, str], Row], size: float) -> Iterator[Asked]:
    for index, (name, (first, *rest)) in enumerate(zip(laid.settings, laid.levels, strict=True)):
        over = tuple(f"{laid.settings[1 - index]}={level}" for level in laid.levels[1 - index])
        means = {level: _mean([row for place, row in y.items() if place[index] == level]) for level in (first, *rest)}
        for level in rest:
            yield Asked(metric, means[first], means[level], size, f"{name}={level}", f"{name}={first}", over)


def _both(laid: Laid, metric: Metric, y: Mapping[tuple[str, str], Row], size: float) -> Iterator[Asked]:
    (row, *rows), (column, *columns) = laid.levels
    first, second = laid.settings
    for a in rows:
        for b in columns:
            here, there = (_less(y[level, b], y[level, column]) for level in (row, a))
            at = f"{first}={row}", f"{first}={a}"
            yield Asked(metric, here, there, size, f"{second}={b}", f"{second}={column}", at=at)


def _mean(rows: Sequence[Row]) -> Row:
    return [math.fsum(each) / len(rows) for each in zip(*rows, strict=True)]


def _less(candidate: Row, baseline: Row) -> Row:
    return [c - b for c, b in zip(candidate, baseline, strict=True)]


def _answers(asked: Sequence[Asked]) -> tuple[tuple[MainEffect, ...], tuple[Interaction, ...]]:
    enough = [one for one in asked if len(one.here) >= MIN_RUNS]
    measured = [stats.paired_difference(one.here, one.there) for one in enough]
    adjusted = stats.false_discovery([effect.p for effect in measured])
    answers = {id(one): (effect, p) for one, effect, p in zip(enough, measured, adjusted, strict=True)}
    effects: list[MainEffect] = []
    interactions: list[Interaction] = []
    for one in asked:
        effect, p = answers.get(id(one), (None, None))
        verdict: Verdict = "too few runs"
        reason: Reason = "too few runs"
        if effect is not None and p is not None:
            verdict, reason = concluded(one.metric, effect.value, raw=effect.p, p=p, size=one.size)
        said = {"metric": one.metric.name, "of": one.of, "against": one.against}
        if one.at is None:
            worth = _worth(one.metric, one.here, one.there, effect)
            effects.append(
                MainEffect(**said, over=one.over, worth=worth, n=len(one.here), p=p, verdict=verdict, reason=reason)
            )
            continue
        nothing = [0.0] * len(one.here)
        each = (_worth(one.metric, nothing, row, _alone(row)) for row in (one.here, one.there))
        interactions.append(
            Interaction(
                **said, at=one.at, worth=(next(each), next(each)), apart=_worth(one.metric, one.here, one.there, effect),
                n=len(one.here), p=p, shown=reason == "shown", reason=reason,
            )
        )  # fmt: skip
    return tuple(effects), tuple(interactions)


def _alone(row: Row) -> stats.Effect | None:
    return stats.paired_difference([0.0] * len(row), row) if len(row) >= MIN_RUNS else None


def _worth(metric: Metric, here: Row, there: Row, effect: stats.Effect | None) -> Worth:
    """As it is read: of times the other way round, so that more is faster."""
    mean = math.fsum(_less(there, here)) / len(here)
    value, low, high = (mean, None, None) if effect is None else (effect.value, effect.low, effect.high)
    if metric.kind == "difference":
        return Worth(value, low, high)
    if metric.better == "lower":
        value, low, high = -value, None if high is None else -high, None if low is None else -low
    return Worth(math.exp(value), *(None if end is None else math.exp(end) for end in (low, high)))
