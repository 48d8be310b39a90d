"""A study's records in, its findings out: the order in which this room is used. No statistics of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.analysis import cells, metrics
from paceline.analysis.compare import Question, answers
from paceline.analysis.grid import grid
from paceline.analysis.headline import Evidence, headline
from paceline.analysis.judge import judge, questions
from paceline.analysis.missing import missing
from paceline.analysis.payback import payback
from paceline.analysis.scaling import scaling
from paceline.records.findings import CellFinding, Metric
from paceline.records.record import Record
from paceline.records.study import StudyRecord
from paceline.records.study_findings import RunCounts, StudyFindings


def _questions(study: StudyRecord, table: dict[str, Metric]) -> list[Question]:
    """Every cell against the baseline in every compared metric."""
    baseline = next((cell for cell in study.cells if cell.plan.label == study.plan.baseline), None)
    others = [cell for cell in study.cells if cell is not baseline]
    return [Question(m, baseline, cell) for m in table.values() if m.compared and baseline for cell in others]


def _is_plain(question: Question, table: dict[str, Metric]) -> bool:
    """A question anybody could ask of two cells, not only a claim with a size, a factor or a second metric of its own."""
    own = question.metric.size == table[question.metric.name].size
    return own and not question.against and question.factor == 1


def _counts(cells: Sequence[CellFinding], records: Sequence[Record]) -> RunCounts:
    scored = {(r.test.num_samples, r.test.of) for r in records if r.test.num_samples is not None}
    timed = [record.steady for record in records if record.throughput is not None]
    return RunCounts(
        evaluated=frozenset(scored),
        unsteady=sum(steady is not None and not steady.steady for steady in timed),
        stopped=sum(record.stopped is not None for record in records),
        to_make=sum(cell.to_make for cell in cells if cell.outcome != "skipped"),
    )


def _target(records: Sequence[Record]) -> float | None:
    return next((record.spec["target"] for record in records if record.spec.get("target") is not None), None)


def findings(study: StudyRecord) -> StudyFindings:
    records = [record for cell in study.cells for _, record in cell.completed]
    # in the order they are written: a set's order is another one in every process
    spoken_of = (name for said in study.plan.conclusions for name in (said.metric, said.against) if name)
    quoted = list(dict.fromkeys([*(name for cell in study.plan.cells for name in cell.reference), *spoken_of]))
    table = metrics.table(records, quoted)
    if len({record.spec.get("target") for record in records}) > 1:  # times to different targets are no race
        table = tuple(metric for metric in table if metric.name != metrics.TO_TARGET)
    # what a report speaks of is what its reader looks for
    spoken = {conclusion.metric for conclusion in study.plan.conclusions}
    table = tuple(replace(metric, main=metric.main or metric.name in spoken) for metric in table)
    by_name = {metric.name: metric for metric in table}
    rows = tuple(cells.finding(cell, table) for cell in study.cells)
    asked, claimed = _questions(study, by_name), questions(study, by_name)
    answered = answers([*asked, *claimed])
    plain = {question.key: None for question in (*asked, *claimed) if _is_plain(question, by_name)}
    comparisons = tuple(answered[key] for key in plain if key in answered)
    own = metrics.main_score(records)
    score = by_name.get(f"test.{own[0]}") if own else None
    target = _target(records)
    scaled = scaling(study, by_name)
    slow = missing(study, scaled, rows)
    graphs = payback(study)
    prints = [record.fingerprint for cell in study.cells for _, record in cell.records]
    plan = study.plan
    return StudyFindings(
        name=plan.name,
        about=plan.about,
        task=plan.task,
        conclusion=headline(Evidence(study, rows, comparisons, by_name, score, target, slow, graphs)),
        baseline=plan.baseline,
        quick=plan.quick,
        cells=rows,
        comparisons=comparisons,
        scaling=scaled,
        judged=judge(study, by_name, answered),
        tested=sum(one.p is not None for one in answered.values()),
        changed=tuple(plan.changed),
        scaled_down=plan.scaled_down,
        counts=_counts(rows, records),
        fingerprints=tuple(one for one in prints if one is not None and one.plain),
        score=score,
        author_notes=tuple(plan.notes),
        warnings=tuple(dict.fromkeys((warned.kind, warned.text) for record in records for warned in record.warnings)),
        loose=study.loose,
        source=plan.source,
        swept=tuple(plan.swept),
        metrics=table,
        target=target,
        missing=slow,
        payback=graphs,
        grid=grid(study, by_name, score),
    )
