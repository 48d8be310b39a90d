"""One cell at a time: how its runs ended, their figures with intervals, where their time went. It compares nothing."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from paceline.analysis.attribution import causes, cell_bound, cell_stragglers, training_means
from paceline.analysis.metrics import GAP, TO_TARGET
from paceline.analysis.stats import interval, positive_interval
from paceline.records.applied import left_out, number_formats
from paceline.records.findings import CellFinding, CellOutcome, FailedLog, FailedRuns, Interval, Metric
from paceline.records.limits import mean_hidden
from paceline.records.record import Record
from paceline.records.study import CellRecord


def figure(record: Record, metric: str) -> float | None:
    """A figure of the record, or the distance between a score of the training samples and one of the test samples."""
    if not metric.startswith(GAP):
        return record.metric(metric)
    name = metric.removeprefix(GAP)
    train, test = record.metric(f"train.{name}"), record.metric(f"test.{name}")
    return None if train is None or test is None else train - test


def values(cell: CellRecord, metric: str) -> dict[int, float]:
    """The figure of each completed repeat that has one.

    Time to target is all or nothing: runs that never reached it are the slow ones, and a mean over the rest flatters.
    """
    figures = {repeat: value for repeat, record in cell.completed if (value := figure(record, metric)) is not None}
    return {} if metric == TO_TARGET and len(figures) < len(cell.completed) else figures


def planned(cell: CellRecord) -> int:
    """Runs the plan asks for; a loose folder has no plan, so what is there is all there is."""
    return len(cell.plan.keys) or len(cell.records)


def _outcome(cell: CellRecord) -> CellOutcome:
    completed = len(cell.completed)
    if completed and completed >= planned(cell):
        return "completed"
    if completed:
        return "partial"
    if cell.failed:
        return "skipped" if all(record.outcome == "skipped" for _, record in cell.failed) else "failed"
    return "skipped" if cell.plan.skipped else "pending"


def _failures(cell: CellRecord) -> tuple[FailedRuns, ...]:
    """Each reason once, with how many runs it ended."""
    ended: dict[tuple[str | None, str | None], list[tuple[int, Record]]] = {}
    for repeat, record in cell.failed:
        ended.setdefault((record.kind, record.why), []).append((repeat, record))
    return tuple(FailedRuns(kind, why, len(runs), tuple(_logs(runs))) for (kind, why), runs in ended.items())


def _logs(runs: Sequence[tuple[int, Record]]) -> Iterator[FailedLog]:
    for repeat, record in runs:
        if (path := record.log_path) is not None:
            yield FailedLog(repeat, str(path))


def _parts(records: Sequence[Record]) -> dict[str, float]:
    """Mean seconds by part; a part that no run could tell apart is absent, one that only some could is 0 elsewhere."""
    rows = [(record.time.parts if record.time else None) or {} for record in records]
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    return {name: statistics.fmean(row.get(name) or 0.0 for row in rows) for name in names}


def _unexplained(records: Sequence[Record]) -> float | None:
    """The share of the wall time that is in no part; the mean over the runs that can tell."""
    rows = [(record.metric("time.parts.other"), record.metric("time.wall_s")) for record in records]
    told = [other / wall for other, wall in rows if other is not None and wall]
    return statistics.fmean(told) if told else None


def _hidden(records: Sequence[Record]) -> float | None:
    told = [hidden_s for record in records if (hidden_s := mean_hidden(record)) is not None]
    return statistics.fmean(told) if told else None


def _shares(parts: dict[str, float]) -> dict[str, float]:
    total = sum(parts.values())
    return {name: seconds / total for name, seconds in causes(parts).items()} if total > 0 else {}


def finding(cell: CellRecord, metrics: Sequence[Metric]) -> CellFinding:
    records = [record for _, record in cell.completed]
    figures: dict[str, Interval] = {}
    for metric in metrics:
        if each := values(cell, metric.name):
            around = positive_interval if metric.kind == "ratio" else interval
            figures[metric.name] = around(list(each.values()))
    training, bound = training_means(records), cell_bound(records)
    skipped_updates = [left_out(record.applied) for record in records]
    formats = [number_formats(record.applied) for record in records]
    target = any(record.spec.get("target") is not None for record in records)
    return CellFinding(
        label=cell.plan.label,
        settings=cell.plan.settings,
        n=len(records),
        outcome=_outcome(cell),
        metrics=figures,
        skipped=cell.plan.skipped,
        failures=_failures(cell),
        reference=dict(cell.plan.reference),
        planned=planned(cell),
        to_make=planned(cell) - len(cell.records),
        reached=sum(record.metric(TO_TARGET) is not None for record in records) if target else None,
        parts=_parts(records),
        training_parts=training,
        training_shares=_shares(training),
        hidden_s=_hidden(records),
        unexplained=_unexplained(records),
        bound_by=bound[0] if bound else None,
        bound_share=bound[1] if bound else None,
        stragglers=cell_stragglers(records),
        formats=tuple(dict.fromkeys(one for one in formats if one is not None)),
        left_out=(sum(num for num, _ in skipped_updates), sum(of for _, of in skipped_updates)),
    )
