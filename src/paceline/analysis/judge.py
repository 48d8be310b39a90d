"""What a report concluded, beside what was measured. It only reads comparisons that were made; it makes none.

The rules, all of them here; the practical size is the metric's own, or the claim's:
- An interval within the practical size confirms "equal", and refutes "lower" and "higher".
- A difference that is shown confirms the direction it has, and refutes the other one and "equal".
- Where none is shown, "lower" is refuted if no value of the interval is lower by the practical size; "higher" likewise.
- A claim with a size of its own ("far slower") is about that size: confirmed where the whole interval has it, refuted where none of
  it has, and not decided where the interval reaches both sides, or where all comparisons together leave it to chance.
- Runs on other hardware than a claim speaks of say nothing of it, whatever their figures are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paceline.analysis.cells import figure, planned
from paceline.analysis.compare import Key, Question, on_scale
from paceline.analysis.hardware import lacking
from paceline.analysis.past import past
from paceline.records.findings import Basis, Comparison, Judged, Metric, ReportVerdict
from paceline.records.study import CellRecord, Conclusion, StudyRecord


def question(conclusion: Conclusion, table: Mapping[str, Metric], cells: Mapping[str, CellRecord]) -> Question | None:
    """None where the study has no such cells, or no run has such a figure."""
    metric, base, cell = table.get(conclusion.metric), cells.get(conclusion.baseline), cells.get(conclusion.candidate)
    if metric is None or base is None or cell is None:
        return None
    sized = metric if conclusion.size is None else replace(metric, size=conclusion.size)
    return Question(sized, base, cell, conclusion.against or "", conclusion.factor)


def at_equal_work(asked: Question, conclusion: Conclusion, cells: Mapping[str, CellRecord]) -> Question | None:
    if conclusion.equal_work is None or not set(conclusion.equal_work) <= set(cells):
        return None
    baseline, candidate = (cells[label] for label in conclusion.equal_work)
    return replace(asked, baseline=baseline, candidate=candidate)


def questions(study: StudyRecord, table: Mapping[str, Metric]) -> list[Question]:
    """Whatever the report's conclusions ask; nothing of a quick study, which judges none."""
    cells = {cell.plan.label: cell for cell in study.cells}
    asked: list[Question] = []
    for conclusion in () if study.plan.quick else study.plan.conclusions:
        if (one := question(conclusion, table, cells)) is not None:
            asked += [one, *filter(None, [at_equal_work(one, conclusion, cells)])]
    return asked


def _sized(says: str, low: float, high: float, size: float) -> tuple[ReportVerdict, Basis]:
    """`low` and `high` of the distance; `size` is the claim's own."""
    if says == "equal":
        if -size <= low and high <= size:
            return "confirmed", "within the practical size"
        return (
            ("refuted", "beyond its size") if low > size or high < -size else ("not decided", "both sides of its size")
        )
    if says == "lower":
        low, high = -high, -low
    if low >= size:
        return "confirmed", "beyond its size"
    return ("refuted", "beyond the interval") if high < size else ("not decided", "both sides of its size")


def _verdict(conclusion: Conclusion, compared: Comparison) -> tuple[ReportVerdict, Basis]:
    if compared.value is None or compared.low is None or compared.high is None:
        return "too few runs", "compared"
    says, (low, high) = conclusion.says, (on_scale(compared, end) for end in (compared.low, compared.high))
    if conclusion.size is not None:
        verdict, basis = _sized(says, low, high, compared.size)
        chance = basis == "beyond its size" and compared.reason in ("chance", "chance among many")
        return ("not decided", "compared") if chance else (verdict, basis)
    if -compared.size <= low and high <= compared.size:
        return "confirmed" if says == "equal" else "refuted", "within the practical size"
    if compared.reason == "shown":
        direction = "higher" if on_scale(compared, compared.value) > 0 else "lower"
        return "confirmed" if says == direction else "refuted", "compared"
    if (says == "lower" and low > -compared.size) or (says == "higher" and high < compared.size):
        return "refuted", "beyond the interval"
    return "no difference shown", "compared"


def _absent(judged: Judged, conclusion: Conclusion, cells: Mapping[str, CellRecord]) -> Judged:
    """Why there is nothing to compare."""
    for label, metric in (
        (conclusion.baseline, conclusion.against or conclusion.metric),
        (conclusion.candidate, conclusion.metric),
    ):
        cell = cells.get(label)
        if cell is None:
            return replace(judged, basis="no such cell", cell=label)
        if cell.plan.skipped or _all_refused(cell):
            return replace(judged, verdict="not tested here", basis="refused", cell=label)
        if not cell.completed and len(cell.failed) >= planned(
            cell
        ):  # what this machine does with it, and no run still to come
            return replace(judged, verdict="not tested here", basis="failed", cell=label)
        if not cell.completed:
            return replace(judged, basis="no completed run", cell=label)
        if all(figure(record, metric) is None for _, record in cell.completed):
            return replace(judged, verdict="not tested here", basis="no such figure", metric=metric, cell=label)
    # every cell has some, and yet they cannot be compared: the time to a target that not every run reached
    return replace(judged, verdict="not tested here", basis="no such figure", cell=conclusion.candidate)


def _all_refused(cell: CellRecord) -> bool:
    return bool(cell.records) and all(record.outcome == "skipped" for _, record in cell.records)


def judge(study: StudyRecord, table: Mapping[str, Metric], answers: Mapping[Key, Comparison]) -> tuple[Judged, ...]:
    cells = {cell.plan.label: cell for cell in study.cells}
    return tuple(_judged(one, study, table, cells, answers) for one in study.plan.conclusions)


def _judged(
    conclusion: Conclusion, study: StudyRecord, table: Mapping[str, Metric], cells: Mapping[str, CellRecord],
    answers: Mapping[Key, Comparison],
) -> Judged:  # fmt: skip
    metric = table.get(conclusion.metric)
    judged = Judged(
        conclusion.claim, "not tested", "quick study", conclusion.metric, says=conclusion.says, report=conclusion.report,
        note=conclusion.note, size=conclusion.size, past=past(conclusion, study.plan, metric),
    )  # fmt: skip
    if study.plan.quick:  # it shows that the study works, not whether the report is right
        return judged
    asked = question(conclusion, table, cells)
    compared = answers.get(asked.key) if asked else None
    if asked is None or compared is None:
        return _absent(judged, conclusion, cells)
    fair = at_equal_work(asked, conclusion, cells)
    judged = replace(judged, comparison=compared, equal_work=answers.get(fair.key) if fair else None)
    if lacks := lacking(conclusion.needs, asked.baseline, asked.candidate):
        return replace(judged, verdict="not tested here", basis="other hardware", lacking=lacks)
    verdict, basis = _verdict(conclusion, compared)
    return replace(judged, verdict=verdict, basis=basis)
