"""A study's records in, its findings out: the order in which this room is used. No statistics of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.analysis import cells, formats, metrics
from paceline.analysis.attribution import points
from paceline.analysis.compare import ALPHA, MIN_RUNS, Question, compare, size_in_words
from paceline.analysis.headline import Evidence, headline
from paceline.analysis.judge import judge
from paceline.analysis.missing import missing
from paceline.analysis.payback import payback
from paceline.analysis.provenance import Provenance
from paceline.analysis.scaling import scaling
from paceline.records.findings import CellFinding, Comparison, Metric, Scaling, StudyFindings
from paceline.records.limits import bound_name
from paceline.records.record import Record
from paceline.records.study import StudyRecord


def _questions(study: StudyRecord, table: dict[str, Metric]) -> list[Question]:
    """Every cell against the baseline in every compared metric, and whatever a report's conclusions ask beside that."""
    by_label = {cell.plan.label: cell for cell in study.cells}
    baseline = by_label.get(study.plan.baseline)
    asked: list[Question] = []
    if baseline is not None:
        others = [cell for cell in study.cells if cell is not baseline]
        asked = [Question(m, baseline, cell) for m in table.values() if m.compared for cell in others]
    for wanted in study.plan.conclusions:
        metric, base, cell = table.get(wanted.metric), by_label.get(wanted.baseline), by_label.get(wanted.candidate)
        if metric and base and cell and not study.plan.quick:
            asked.append(Question(metric, base, cell))
    return asked


def _method(comparisons: Sequence[Comparison], table: Sequence[Metric]) -> str:
    tested = sum(c.p is not None for c in comparisons)
    pairing = {True: "paired by repeat (same seed, same block)", False: "unpaired (Welch)"}
    ways = " or ".join(pairing[paired] for paired in sorted({c.paired for c in comparisons}, reverse=True))
    sizes = "; ".join(f"{m.title} {size_in_words(m)}" for m in table if m.compared)
    text = "Intervals are 95 % t intervals of the mean; the run is the unit, n counts completed runs, ± is the standard deviation."
    if not tested:
        return text
    return (
        f"{text} Differences are {ways}, on the log scale for ratios. A verdict needs p < {ALPHA:g} after Benjamini-Hochberg "
        f"control over all {tested} comparisons, at least {MIN_RUNS} runs, and an estimate beyond the practical size ({sizes})."
    )


def _evaluated(records: Sequence[Record]) -> list[str]:
    """Said of every study: how much of the test set the scores stand on."""
    counts = {(r.test.get("evaluated"), r.test.get("of")) for r in records if r.test.get("evaluated") is not None}
    if len(counts) == 1:
        done, of = counts.pop()
        return [
            f"Every test score is over all ranks together: evaluated {done} of {of} samples in every completed run."
        ]
    return ["The runs were not scored on the same number of test samples."] if counts else []


def _scaling_notes(rows: Sequence[Scaling]) -> list[str]:
    said = {
        "strong": "strong scaling, the global batch is the same everywhere; speed-up is a ratio of training times",
        "weak": "weak scaling, the batch per rank is the same and the global batch grows; speed-up is a ratio of throughputs",
        "mixed": "mixed scaling, neither the global batch nor the batch per rank is the same; speed-up is a ratio of throughputs",
    }
    kinds = dict.fromkeys(row.kind for row in rows if row.label != row.baseline)
    return [f"Scaling: {said[kind]}." for kind in kinds]


def _slow_notes(found: Sequence[CellFinding]) -> list[str]:
    """Cells that get too little data, and ranks that the others wait for."""
    hungry = [
        f"{cell.label} ({points(cell.bound_share)})"
        for cell in found
        if cell.bound == bound_name("data") and cell.bound_share
    ]
    notes = (
        [f"Input-bound, getting batches is the largest part of a training step: {', '.join(hungry)}."] if hungry else []
    )
    return notes + [f"{cell.label}: {rank.words}." for cell in found for rank in cell.stragglers]


def _notes(study: StudyRecord, found: Sequence[CellFinding], records: Sequence[Record]) -> list[str]:
    notes: list[str] = []
    if study.plan.quick:
        notes.append(
            "Quick study: scaled down, so it gives no verdict on a report's conclusion and is not evidence for the full size."
        )
    to_make = sum(
        cell.planned - len(record.records)
        for cell, record in zip(found, study.cells, strict=True)
        if cell.outcome != "skipped"
    )
    if to_make > 0:
        notes.append(f"Unfinished: {to_make} planned runs are still to be made.")
    timed = [record for record in records if record.plain.get("throughput") is not None]
    unsteady = sum(not (record.plain.get("steady") or {"steady": True})["steady"] for record in timed)
    if unsteady:
        notes.append(f"Throughput of {unsteady} runs includes warm-up: they have no step beyond it.")
    return [*study.plan.notes, *notes, *_evaluated(records), *formats.notes(study), *_slow_notes(found)]


def _target(records: Sequence[Record]) -> float | None:
    return next((record.spec["target"] for record in records if record.spec.get("target") is not None), None)


def findings(study: StudyRecord) -> StudyFindings:
    records = [record for cell in study.cells for _, record in cell.completed]
    table = metrics.table(records, {name for cell in study.plan.cells for name in cell.reference})
    if len({record.spec.get("target") for record in records}) > 1:  # times to different targets are no race
        table = tuple(metric for metric in table if metric.name != metrics.TO_TARGET)
    asked = {
        conclusion.metric for conclusion in study.plan.conclusions
    }  # what a report speaks of is what its reader looks for
    table = tuple(replace(metric, main=metric.main or metric.name in asked) for metric in table)
    by_name = {metric.name: metric for metric in table}
    found = tuple(cells.finding(cell, table) for cell in study.cells)
    comparisons = tuple(compare(_questions(study, by_name)))
    own = metrics.main_score(records)
    score = by_name.get(f"test.{own[0]}") if own else None
    target = _target(records)
    scaled = scaling(study, by_name)
    slow = missing(study, scaled, found)
    graphs = payback(study)
    where = Provenance([record for cell in study.cells for _, record in cell.records])
    plan = study.plan
    return StudyFindings(
        name=plan.name,
        about=plan.about,
        task=plan.task,
        headline=headline(Evidence(study, found, comparisons, by_name, score, target, slow, graphs)),
        baseline=plan.baseline,
        quick=plan.quick,
        cells=found,
        comparisons=comparisons,
        scaling=scaled,
        judged=judge(
            plan.conclusions,
            comparisons=comparisons,
            cells={cell.label: cell for cell in found},
            metrics=by_name,
            quick=plan.quick,
        ),
        notes=(*_notes(study, found, records), *_scaling_notes(scaled), *where.notes),
        hardware=where.hardware,
        versions=where.versions,
        source=plan.source,
        swept=tuple(plan.swept),
        metrics=table,
        code=where.code,
        method=_method(comparisons, table),
        target=target,
        missing=slow,
        payback=graphs,
    )
