"""When is a graph paid back? What making it took, beside what each step saves against the eager steps of the same study.

The number of steps is compile seconds / (eager step - graph step), run by run where runs are paired. It is named only where a step
is shown to be quicker; "never" where it is shown to be slower.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.analysis.compare import MIN_RUNS
from paceline.analysis.stats import interval
from paceline.records.findings import Interval, Payback, PaybackVerdict
from paceline.records.record import Record
from paceline.records.steps import steps_in_words
from paceline.records.study import CellRecord, StudyRecord

_NUMBERED = ("paid back", "too few runs")
# What a graph may change beside itself, and what every repeat changes.
_OF_THE_GRAPH = frozenset({"graph", "graph_of", "update", "seed"})


def step_s(record: Record) -> float | None:
    """Seconds of a step in the steady state, without what compiling took."""
    throughput, samples, steps = (record.plain.get(name) for name in ("throughput", "samples", "steps"))
    return samples / steps / throughput if throughput and samples and steps else None


def _same(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in _OF_THE_GRAPH}


def _baseline(cell: CellRecord, study: StudyRecord) -> CellRecord | None:
    """The eager cell that differs in nothing else; of several, because the way of the update is swept too, the one with the same."""
    own = cell.plan.spec
    eager = [
        other
        for other in study.cells
        if other.plan.spec.get("graph") == "eager" and _same(other.plan.spec) == _same(own)
    ]
    alike = [other for other in eager if other.plan.spec.get("update") == own.get("update")]
    return next(iter((*alike, *eager)), None)


def _timed(cell: CellRecord) -> dict[int, tuple[Record, float]]:
    return {repeat: (record, seconds) for repeat, record in cell.completed if (seconds := step_s(record)) is not None}


def _verdict(saved: Interval) -> PaybackVerdict:
    if saved.n < MIN_RUNS or saved.low is None or saved.high is None:
        return "too few runs"
    return "paid back" if saved.low > 0 else "never" if saved.high <= 0 else "not shown"


def _steps(costs: Sequence[float], saved: Sequence[float]) -> Interval:
    """Run by run, on the log scale, as all ratios here; without an interval where a run saved nothing."""
    if len(saved) < 2 or min(saved) <= 0 or min(costs) <= 0:
        return Interval(statistics.fmean(costs) / statistics.fmean(saved), None, None, len(saved), ())
    each = [cost / gain for cost, gain in zip(costs, saved, strict=True)]
    logs = interval([math.log(value) for value in each])
    assert logs.low is not None and logs.high is not None
    return Interval(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high), len(each), tuple(each))


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return statistics.fmean(row[name] for row in rows)


def _row(cell: CellRecord, base: CellRecord) -> Payback | None:
    graph, eager = _timed(cell), _timed(base)
    if base.plan.keys and cell.plan.keys:
        common = [repeat for repeat in graph if repeat in eager]
        graph, eager = ({repeat: one[repeat] for repeat in common} for one in (graph, eager))
    rows = [record["graph"] for record, _ in graph.values() if record.plain.get("graph")]
    if not rows or not eager or len(rows) != len(graph):
        return None
    costs, quick, slow = ([row["compile_s"] for row in rows], *([s for _, s in one.values()] for one in (graph, eager)))
    paired = len(quick) == len(slow) and bool(base.plan.keys and cell.plan.keys)
    saved = (
        [b - g for g, b in zip(quick, slow, strict=True)]
        if paired
        else [statistics.fmean(slow) - statistics.fmean(quick)]
    )
    gain = interval(saved)
    verdict = _verdict(gain)
    found = Payback(
        cell.plan.label, base.plan.label, interval(costs), interval(quick), interval(slow), gain, verdict,
        _steps(costs if paired else [statistics.fmean(costs)], saved) if verdict in _NUMBERED and gain.mean > 0 else None,
        statistics.fmean(record["steps"] for record, _ in graph.values()),
        {name: _mean(rows, name) for name in ("graphs", "breaks", "recompiles", "eager_steps")},
        tuple(dict.fromkeys(reason for row in rows for reason in (*row["break_reasons"], *row["recompile_reasons"]))),
        "",
    )  # fmt: skip
    return found.said(_words(found))


def _words(row: Payback) -> str:
    took = f"Making the graph took {_figure(row.compile_s, 1, 's')}."
    step = f"A step then takes {_figure(row.step_s, 1e3, 'ms')} instead of {_figure(row.eager_step_s, 1e3, 'ms')} of {row.baseline}"
    return f"{took} {step}: {_end(row)}{_disturbed(row)}"


def _end(row: Payback) -> str:
    n = row.saved_s.n
    after = "" if row.steps is None else f"after {steps_in_words(row.steps)} steps"
    match row.verdict:
        case "paid back":
            enough = "enough" if row.steps is not None and row.made_steps >= row.steps.mean else "too few"
            return f"paid back {after} (n = {n}); these runs had {row.made_steps:,.0f}, {enough}."
        case "never":
            return f"never paid back (n = {n})."
        case "not shown":
            return f"no difference in speed is shown, so no number of steps can be named (n = {n})."
        case "too few runs":
            said = f"paid back {after}" if after else "never paid back"
            return f"by these runs {said}, but it takes {MIN_RUNS} paired runs to say so (n = {n})."


def _disturbed(row: Payback) -> str:
    """What the graph could not hold, as torch said it."""
    breaks, again = row.counts["breaks"], row.counts["recompiles"]
    text = f" The graph broke in {breaks:g} place{'' if breaks == 1 else 's'}" if breaks else ""
    text += f": {row.reasons[0]}." if breaks and row.reasons else "." if breaks else ""
    return text + (f" It was compiled again {again:g} time{'' if again == 1 else 's'}." if again else "")


def _figure(figure: Interval, scale: float, unit: str) -> str:
    text = f"{figure.mean * scale:.3g} {unit}"
    if figure.low is None or figure.high is None:
        return text
    return f"{text} [{figure.low * scale:.3g}, {figure.high * scale:.3g}]"


def payback(study: StudyRecord) -> tuple[Payback, ...]:
    """One for each cell with a graph that has an eager one beside it."""
    made: list[Payback | None] = []
    for cell in study.cells:
        if cell.plan.spec.get("graph", "eager") != "eager" and (base := _baseline(cell, study)) is not None:
            made.append(_row(cell, base))
    return tuple(row for row in made if row is not None)
