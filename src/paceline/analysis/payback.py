"""When is a graph paid back? What making it took, beside what each step saves against the eager steps of the same study.

The number of steps is compile seconds / (eager step - graph step), run by run where runs are paired. It is named only where a step
is shown to be quicker; "never" where it is shown to be slower.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.analysis.stats import interval, positive_interval
from paceline.records.findings import MIN_RUNS, Interval, Payback, PaybackVerdict
from paceline.records.measured import Graph
from paceline.records.record import Record
from paceline.records.study import CellRecord, StudyRecord
from paceline.spec.axes.graphs import GRAPHS

_NUMBERED = ("paid back", "too few runs")
# What a graph may change beside itself, and what every repeat changes.
_OF_THE_GRAPH = frozenset({"graph", "graph_of", "update", "seed"})


def step_s(record: Record) -> float | None:
    """Seconds of a step in the steady state, without what compiling took."""
    if not record.throughput or not record.samples or not record.steps:
        return None
    return record.samples / record.steps / record.throughput


def _same(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in _OF_THE_GRAPH}


def _has_graph(cell: CellRecord) -> bool:
    mode = GRAPHS.get(cell.plan.spec.get("graph", ""))
    return mode is not None and mode.is_graph


def _baseline(cell: CellRecord, study: StudyRecord) -> CellRecord | None:
    """The eager cell with the same other settings. Where `update` is swept too there are several: then the one with the same `update`."""
    own = cell.plan.spec
    eager = [other for other in study.cells if not _has_graph(other) and _same(other.plan.spec) == _same(own)]
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


def _counts(graphs: Sequence[Graph]) -> dict[str, float]:
    rows = [(graph.graphs, graph.breaks, graph.recompiles, graph.eager_steps) for graph in graphs]
    names = ("graphs", "breaks", "recompiles", "eager_steps")
    return {name: statistics.fmean(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}


def _row(cell: CellRecord, base: CellRecord) -> Payback | None:
    graph, eager = _timed(cell), _timed(base)
    planned = bool(base.plan.keys and cell.plan.keys)
    if planned:
        common = [repeat for repeat in graph if repeat in eager]
        graph, eager = ({repeat: one[repeat] for repeat in common} for one in (graph, eager))
    graphs = [record.graph for record, _ in graph.values() if record.graph]
    if not graphs or not eager or len(graphs) != len(graph):
        return None
    costs, quick, slow = ([one.compile_s for one in graphs], *([s for _, s in one.values()] for one in (graph, eager)))
    paired = len(quick) == len(slow) and planned
    saved = [statistics.fmean(slow) - statistics.fmean(quick)]
    if paired:
        saved = [b - g for g, b in zip(quick, slow, strict=True)]
    gain = interval(saved)
    verdict = _verdict(gain)
    numbered = verdict in _NUMBERED and gain.mean > 0
    cost, step, eager_step = positive_interval(costs), positive_interval(quick), positive_interval(slow)
    reasons = (reason for one in graphs for reason in (*one.break_reasons, *one.recompile_reasons))
    return Payback(
        cell.plan.label, base.plan.label, cost, step, eager_step, gain, verdict,
        _steps(costs if paired else [statistics.fmean(costs)], saved) if numbered else None,
        statistics.fmean(record.steps or 0 for record, _ in graph.values()), _counts(graphs), tuple(dict.fromkeys(reasons)),
    )  # fmt: skip


def payback(study: StudyRecord) -> tuple[Payback, ...]:
    """One for each cell with a graph that has an eager one beside it."""
    made: list[Payback | None] = []
    for cell in study.cells:
        if _has_graph(cell) and (base := _baseline(cell, study)) is not None:
            made.append(_row(cell, base))
    return tuple(row for row in made if row is not None)
