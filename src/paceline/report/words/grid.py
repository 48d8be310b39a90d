"""Two swept settings in sentences: what one is worth, whether that depends on the other, and what a gap in the grid leaves out."""

from __future__ import annotations

from paceline.records.findings import MIN_RUNS, Metric, Reason
from paceline.records.grid import Grid, Interaction, MainEffect, Worth
from paceline.report.words.figures import size_in_words


def _how_much(worth: Worth, metric: Metric) -> str:
    scale, form, unit = _form(metric)
    return f"{worth.value * scale:{form}}{unit}"


def _form(metric: Metric) -> tuple[float, str, str]:
    if metric.kind == "ratio":
        return 1, ".2f", "x"
    return (100, "+.2f", " points") if metric.unit == "fraction" else (1, "+.3g", "")


def _around(worth: Worth, metric: Metric, n: int) -> str:
    scale, form, _ = _form(metric)
    if worth.low is None or worth.high is None:
        return f"n = {n}"
    return f"95 % interval {worth.low * scale:{form}} to {worth.high * scale:{form}}, n = {n}"


def _why(reason: Reason, metric: Metric, what: str) -> str:
    match reason:
        case "too few runs":
            return f"a verdict needs {MIN_RUNS} repeats that every cell has"
        case "chance":
            return f"the interval includes no {what}"
        case "chance among many":
            return "not beyond chance once all of these are counted"
        case "small":
            return f"within the practical size of {size_in_words(metric)}"
        case "shown":
            return ""


def effect(one: MainEffect, metric: Metric) -> str:
    over = f", the mean over {', '.join(one.over)}"
    figures = f"{_how_much(one.worth, metric)}{' as fast' if metric.kind == 'ratio' else ''}"
    around = f"({_around(one.worth, metric, one.n)})"
    if one.reason == "shown":
        return f"{one.of} is {one.verdict} than {one.against}: {figures} {around}{over}."
    said = "too few runs" if one.reason == "too few runs" else "no difference is shown"
    return (
        f"{one.of} against {one.against}: {said}, {figures} {around}{over}; {_why(one.reason, metric, 'difference')}."
    )


def interaction(one: Interaction, metric: Metric) -> str:
    first, second = (_how_much(worth, metric) for worth in one.worth)
    if metric.kind == "ratio":
        told = f"{one.of} is {first} as fast as {one.against} at {one.at[0]} and {second} at {one.at[1]}"
        apart = f"the second is {_how_much(one.apart, metric)} the first"
    else:
        told = f"{one.of} instead of {one.against} moves {metric.title} by {first} at {one.at[0]} and by {second} at {one.at[1]}"
        apart = f"they are {_how_much(one.apart, metric)} apart"
    around = f"({apart}, {_around(one.apart, metric, one.n)})"
    if one.shown:
        return f"{told}: the two settings interact {around}."
    said = "too few runs to say whether they interact" if one.reason == "too few runs" else "no interaction is shown"
    return f"{told}: {said} {around}; {_why(one.reason, metric, 'interaction')}."


def gap(found: Grid) -> str:
    if not found.lacking:
        return ""
    cells = ", ".join(found.lacking)
    if found.effects:
        return f"not every run of {cells} has a figure: only the repeats that every cell has are counted here."
    each = " and ".join(found.settings)
    return f"nothing can be said of {each} by themselves: no repeat has a figure in every cell, for want of {cells}."
