"""Why a comparison ended as it did, and what became of a report's conclusion, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paceline.records.findings import MIN_RUNS, CellFinding, Comparison, Judged, Metric, Past
from paceline.report.words.cells import reasons
from paceline.report.words.figures import capitalized, size_in_words
from paceline.report.words.numbers import as_printed, number


def why(compared: Comparison, metric: Metric) -> str:
    match compared.reason:
        case "too few runs":
            what = "common runs" if compared.paired else "runs of the smaller cell"
            return f"{compared.n} {what}; a verdict needs {MIN_RUNS}"
        case "chance":
            return "the interval includes no difference"
        case "chance among many":
            return "not beyond chance once all comparisons of the study are counted"
        case "small":
            return f"smaller than the practical size of {size_in_words(metric)}"
        case "shown":
            return "beyond chance and beyond the practical size"


def _amount(value: float, compared: Comparison, metric: Metric) -> str:
    if compared.kind == "ratio":
        return f"{value:.3f}"
    if metric.unit == "fraction":
        return f"{value * 100:+.2f}"
    return f"{'+' if value > 0 else ''}{number(value, metric.unit)}" if metric.unit else f"{value:+.3g}"


def _title(name: str, metrics: Mapping[str, Metric]) -> str:
    return metrics[name].title if name in metrics else name


def _whose(compared: Comparison, metrics: Mapping[str, Metric]) -> str:
    """The side a claim compares with: `that of on=1x1`, `a quarter` as 0.25 times, or another metric."""
    what = f"{_title(compared.against, metrics)} of" if compared.against else "that of"
    same = compared.baseline == compared.candidate and compared.against
    side = _title(compared.against, metrics) if same else f"{what} {compared.baseline}"
    return side if compared.factor == 1 else f"{compared.factor:g} x {side}"


def figures(compared: Comparison, metrics: Mapping[str, Metric]) -> str:
    assert compared.value is not None
    metric = metrics[compared.metric]
    word = "times" if compared.kind == "ratio" else "points from" if metric.unit == "fraction" else "from"
    amount = _amount(compared.value, compared, metric)
    text = f"{metric.title} of {compared.candidate} is {amount} {word} {_whose(compared, metrics)}"
    if compared.low is None or compared.high is None:
        return f"{text} (n = {compared.n})"
    low, high = (_amount(end, compared, metric) for end in (compared.low, compared.high))
    return f"{text} (95 % interval {low} to {high}, n = {compared.n})"


def _not_tested(judged: Judged, cells: Mapping[str, CellFinding], metrics: Mapping[str, Metric]) -> str:
    match judged.basis:
        case "quick study":
            return "a quick study is scaled down: it shows that the study works, not whether the report is right"
        case "no such cell":
            return f"this matrix has no cell, or several, with {judged.cell}"
        case "no completed run" | "failed" | "refused":
            cell = cells[judged.cell]
            return f"{judged.cell} is {cell.outcome}: {next(iter(reasons(cell)), 'no run yet')}"
        case _:
            return f"not every run of {judged.cell} has a figure for {_title(judged.metric, metrics)}"


def _past(past: Past, metric: Metric) -> str:
    """The report's own effect beside its own spread."""
    scale, form, unit = (1, ".2f", "x") if past.kind == "ratio" else (1, ".3g", "")
    if past.kind == "difference" and metric.unit == "fraction":
        scale, form, unit = 100, ".2f", " points"
    sign = "+" if past.kind == "difference" else ""
    text = f"in {past.of or 'the report'}: {past.effect * scale:{sign}{form}}{unit}"
    if past.spread is None:
        return text
    figures = ", ".join(as_printed(value, metric.unit) for value in past.values)
    how = "smaller than" if past.smaller else "more than"
    return f"{text}, {how} its own spread, {past.spread * scale:{form}}{unit} ({past.what}: {figures})"


def _size(judged: Judged, metric: Metric) -> str:
    return size_in_words(metric if judged.size is None else replace(metric, size=judged.size))


def _reason(judged: Judged, compared: Comparison, metrics: Mapping[str, Metric]) -> str:
    metric = metrics[judged.metric]
    told = figures(compared, metrics)
    match judged.basis:
        case "other hardware":
            return f"it needs {' and '.join(judged.lacking)}; the figures here: {told}"
        case "within the practical size":
            return f"{told}: within {_size(judged, metric)} of each other"
        case "beyond the interval":
            return f"{told}: nowhere in the interval is it {judged.says} by {_size(judged, metric)}"
        case "beyond its size" | "both sides of its size":
            where = "the whole interval is" if judged.basis == "beyond its size" else "the interval is on both sides of"
            how = "" if judged.basis == "both sides of its size" else " beyond"
            return f"{told}: {where}{how} {_size(judged, metric)}"
        case _:
            pass
    if judged.verdict == "too few runs":
        return f"{why(compared, metric)}; {told}"
    return f"{told}: {why(compared, metric)}" if judged.verdict in ("no difference shown", "not decided") else told


def judged_why(judged: Judged, metrics: Mapping[str, Metric], cells: Mapping[str, CellFinding]) -> str:
    """Our figures, what changes at equal work, the report's own effect beside its spread, and the note that goes with the claim."""
    compared = judged.comparison
    if compared is None:
        told = _not_tested(judged, cells, metrics)
    else:
        told = _reason(judged, compared, metrics)
    if judged.equal_work is not None:
        told += f"; at equal work: {figures(judged.equal_work, metrics)}"
    if judged.past is not None and judged.basis != "quick study":
        told += f"; {_past(judged.past, metrics[judged.metric])}"
    return f"{told}. {capitalized(judged.note)}" if judged.note else told
