"""One cell at a time: how its runs ended, their figures with intervals, where their time went. It compares nothing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from paceline.analysis.attribution import causes, cell_bound, cell_stragglers, training_means
from paceline.analysis.metrics import TO_TARGET
from paceline.analysis.stats import interval
from paceline.records.findings import CellFinding, Interval, Metric
from paceline.records.limits import bound_name, mean_hidden
from paceline.records.record import Record
from paceline.records.study import CellRecord


def values(cell: CellRecord, metric: str) -> dict[int, float]:
    """The figure of each completed repeat that has one.

    Time to target is all or nothing: runs that never reached it are the slow ones, and a mean over the rest flatters.
    """
    found = {repeat: value for repeat, record in cell.completed if (value := record.metric(metric)) is not None}
    return {} if metric == TO_TARGET and len(found) < len(cell.completed) else found


def planned(cell: CellRecord) -> int:
    """Runs the plan asks for; a loose folder has no plan, so what is there is all there is."""
    return len(cell.plan.keys) or len(cell.records)


def _outcome(cell: CellRecord) -> str:
    completed = len(cell.completed)
    if completed and completed >= planned(cell):
        return "completed"
    if completed:
        return "partial"
    if cell.failed:
        return "skipped" if all(record.outcome == "skipped" for _, record in cell.failed) else "failed"
    return "skipped" if cell.plan.skipped else "pending"


def _reasons(cell: CellRecord) -> tuple[str, ...]:
    """Each reason once, with how many runs it ended."""
    if cell.plan.skipped:
        return (cell.plan.skipped,)
    told = Counter(f"{record.kind or 'failed'}: {record.why or 'no reason recorded'}" for _, record in cell.failed)
    reasons = [f"{count} of {planned(cell)} runs: {why}" for why, count in told.items()]
    missing = planned(cell) - len(cell.records)
    return (*reasons, f"{missing} of {planned(cell)} runs still to be made") if missing else tuple(reasons)


def _parts(records: Sequence[Record]) -> dict[str, float]:
    """Mean seconds by part; a part that no run could tell apart is absent, one that only some could is 0 elsewhere."""
    rows: list[dict[str, float | None]] = [record.time.get("parts") or {} for record in records]
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    return {name: statistics.fmean(row.get(name) or 0.0 for row in rows) for name in names}


def _unexplained(records: Sequence[Record]) -> float | None:
    """The share of the wall time that is in no part; the mean over the runs that can tell."""
    rows = [(record.metric("time.parts.other"), record.metric("time.wall_s")) for record in records]
    told = [other / wall for other, wall in rows if other is not None and wall]
    return statistics.fmean(told) if told else None


def _hidden(records: Sequence[Record]) -> float | None:
    told = [found for record in records if (found := mean_hidden(record)) is not None]
    return statistics.fmean(told) if told else None


def _shares(parts: dict[str, float]) -> dict[str, float]:
    whole = sum(parts.values())
    return {name: seconds / whole for name, seconds in causes(parts).items()} if whole > 0 else {}


def finding(cell: CellRecord, metrics: Sequence[Metric]) -> CellFinding:
    records = [record for _, record in cell.completed]
    figures: dict[str, Interval] = {}
    for metric in metrics:
        if found := values(cell, metric.name):
            figures[metric.name] = interval(list(found.values()))
    training, bound = training_means(records), cell_bound(records)
    target = any(record.spec.get("target") is not None for record in records)
    return CellFinding(
        label=cell.plan.label,
        settings=cell.plan.settings,
        n=len(records),
        outcome=_outcome(cell),
        metrics=figures,
        reasons=_reasons(cell),
        reference=dict(cell.plan.reference),
        planned=planned(cell),
        reached=sum(record.metric(TO_TARGET) is not None for record in records) if target else None,
        parts=_parts(records),
        training_parts=training,
        training_shares=_shares(training),
        hidden_s=_hidden(records),
        unexplained=_unexplained(records),
        bound=bound_name(bound[0]) if bound else None,
        bound_share=bound[1] if bound else None,
        stragglers=cell_stragglers(records),
    )
