"""Why a comparison ended as it did, and what became of a report's conclusion, in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.records.findings import MIN_RUNS, CellFinding, Comparison, Judged, Metric
from paceline.report.words.cells import reasons
from paceline.report.words.figures import size_in_words


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


def _figures(compared: Comparison, metric: Metric) -> str:
    assert compared.value is not None
    scale, how, word = {"ratio": (1, ".3f", "times"), "difference": (1, "+.3g", "from")}[metric.kind]
    if metric.unit == "fraction":
        scale, how, word = 100, "+.2f", "points from"
    text = (
        f"{metric.title} of {compared.candidate} is {compared.value * scale:{how}} {word} that of {compared.baseline}"
    )
    if compared.low is None or compared.high is None:
        return f"{text} (n = {compared.n})"
    return f"{text} (95 % interval {compared.low * scale:{how}} to {compared.high * scale:{how}}, n = {compared.n})"


def _not_tested(judged: Judged, cells: Mapping[str, CellFinding]) -> str:
    match judged.basis:
        case "quick study":
            return "a quick study is scaled down: it shows that the study works, not whether the report is right"
        case "no such cell":
            return f"the study has no cell {judged.cell}"
        case "no completed run":
            cell = cells[judged.cell]
            return f"{judged.cell} is {cell.outcome}: {next(iter(reasons(cell)), 'no run yet')}"
        case "no such figure":
            return f"the runs of {judged.cell} have no {judged.metric}"
        case _:
            return f"{judged.metric} was not compared"


def judged_why(judged: Judged, metrics: Mapping[str, Metric], cells: Mapping[str, CellFinding]) -> str:
    compared = judged.comparison
    if compared is None:
        return _not_tested(judged, cells)
    metric = metrics[judged.metric]
    figures = _figures(compared, metric)
    if judged.basis == "within the practical size":
        return f"{figures}: within {size_in_words(metric)} of each other"
    if judged.verdict == "too few runs":
        return f"{why(compared, metric)}; {figures}"
    return f"{figures}: {why(compared, metric)}" if judged.verdict == "no difference shown" else figures
