"""What a report concluded, beside what was measured. It only reads comparisons that were made; it makes none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.analysis.compare import find, on_scale, practical_size
from paceline.records.findings import CellFinding, Comparison, Judged, Metric
from paceline.records.study import Conclusion


def _absent(conclusion: Conclusion, cells: Mapping[str, CellFinding]) -> Judged:
    """Why there is nothing to compare."""
    for label in (conclusion.baseline, conclusion.candidate):
        cell = cells.get(label)
        if cell is None:
            return Judged(conclusion.claim, "not tested", "no such cell", conclusion.metric, cell=label)
        if cell.n == 0:
            return Judged(conclusion.claim, "not tested", "no completed run", conclusion.metric, cell=label)
        if conclusion.metric not in cell.metrics:
            return Judged(conclusion.claim, "not tested", "no such figure", conclusion.metric, cell=label)
    return Judged(conclusion.claim, "not tested", "not compared", conclusion.metric)


def _within(compared: Comparison, metric: Metric, baseline: CellFinding) -> bool:
    """The whole interval lies inside the practical size: this shows "the same"; a mere lack of difference does not."""
    if compared.low is None or compared.high is None:
        return False
    size = practical_size(metric, baseline.metrics[metric.name].values)
    return -size <= on_scale(metric, compared.low) and on_scale(metric, compared.high) <= size


def _one(conclusion: Conclusion, compared: Comparison, metric: Metric, baseline: CellFinding) -> Judged:
    claim = conclusion.claim
    if compared.verdict == "no difference shown" and _within(compared, metric, baseline):
        verdict = "confirmed" if conclusion.says == "equal" else "no difference shown"
        return Judged(claim, verdict, "within the practical size", metric.name, compared)
    if compared.verdict == "too few runs" or compared.verdict == "no difference shown":
        return Judged(claim, compared.verdict, "compared", metric.name, compared)
    assert compared.value is not None
    is_so = conclusion.says == ("higher" if on_scale(metric, compared.value) > 0 else "lower")
    return Judged(claim, "confirmed" if is_so else "refuted", "compared", metric.name, compared)


def judge(
    conclusions: Sequence[Conclusion],
    *,
    comparisons: Sequence[Comparison],
    cells: Mapping[str, CellFinding],
    metrics: Mapping[str, Metric],
    quick: bool,
) -> tuple[Judged, ...]:
    judged: list[Judged] = []
    for conclusion in conclusions:
        compared = find(comparisons, conclusion.metric, conclusion.baseline, conclusion.candidate)
        if quick:  # it shows that the study works, not whether the report is right
            judged.append(Judged(conclusion.claim, "not tested", "quick study", conclusion.metric))
        elif compared is None:
            judged.append(_absent(conclusion, cells))
        else:
            judged.append(_one(conclusion, compared, metrics[conclusion.metric], cells[conclusion.baseline]))
    return tuple(judged)
