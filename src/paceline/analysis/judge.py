"""What a report concluded, beside what was measured. It only reads comparisons that were made; it makes none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.analysis.compare import find, on_scale, practical_size, size_in_words
from paceline.records.findings import CellFinding, Comparison, Judged, Metric
from paceline.records.study import Conclusion


def _absent(conclusion: Conclusion, cells: Mapping[str, CellFinding]) -> str:
    """Why there is nothing to compare."""
    for label in (conclusion.baseline, conclusion.candidate):
        cell = cells.get(label)
        if cell is None:
            return f"the study has no cell {label}"
        if cell.n == 0:
            return f"{label} is {cell.outcome}: {cell.reasons[0] if cell.reasons else 'no run yet'}"
        if conclusion.metric not in cell.metrics:
            return f"the runs of {label} have no {conclusion.metric}"
    return f"{conclusion.metric} was not compared"


def _figures(found: Comparison, metric: Metric) -> str:
    assert found.value is not None
    scale, how, word = {"ratio": (1, ".3f", "times"), "difference": (1, "+.3g", "from")}[metric.kind]
    if metric.unit == "fraction":
        scale, how, word = 100, "+.2f", "points from"
    text = f"{metric.title} of {found.candidate} is {found.value * scale:{how}} {word} that of {found.baseline}"
    if found.low is None or found.high is None:
        return f"{text} (n = {found.n})"
    return f"{text} (95 % interval {found.low * scale:{how}} to {found.high * scale:{how}}, n = {found.n})"


def _within(found: Comparison, metric: Metric, baseline: CellFinding) -> bool:
    """The whole interval lies inside the practical size: this shows "the same"; a mere lack of difference does not."""
    if found.low is None or found.high is None:
        return False
    size = practical_size(metric, baseline.metrics[metric.name].values)
    return -size <= on_scale(metric, found.low) and on_scale(metric, found.high) <= size


def _one(conclusion: Conclusion, found: Comparison, metric: Metric, baseline: CellFinding) -> Judged:
    figures = _figures(found, metric)
    if found.verdict == "too few runs":
        return Judged(conclusion.claim, "too few runs", f"{found.why}; {figures}")
    if found.verdict == "no difference shown":
        if not _within(found, metric, baseline):
            return Judged(conclusion.claim, "no difference shown", f"{figures}: {found.why}")
        same = f"{figures}: within {size_in_words(metric)} of each other"
        return Judged(conclusion.claim, "confirmed" if conclusion.says == "equal" else "no difference shown", same)
    assert found.value is not None
    is_so = conclusion.says == ("higher" if on_scale(metric, found.value) > 0 else "lower")
    return Judged(conclusion.claim, "confirmed" if is_so else "refuted", figures)


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
        if quick:
            why = "a quick study is scaled down: it shows that the study works, not whether the report is right"
            judged.append(Judged(conclusion.claim, "not tested", why))
            continue
        found = find(comparisons, conclusion.metric, conclusion.baseline, conclusion.candidate)
        if found is None:
            judged.append(Judged(conclusion.claim, "not tested", _absent(conclusion, cells)))
        else:
            judged.append(_one(conclusion, found, metrics[conclusion.metric], cells[conclusion.baseline]))
    return tuple(judged)
