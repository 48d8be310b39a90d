"""Figures inside sentences: shares, milliseconds, steps, intervals, practical sizes. It rounds and scales, it computes nothing."""

from __future__ import annotations

import math

from paceline.records.findings import Comparison, Interval, Metric


def points(figure: Interval) -> str:
    """A share with its interval, in whole per cent.

    >>> points(Interval(0.384, 0.351, 0.417, 5, ())), points(Interval(-0.004, None, None, 1, ()))
    ('38 % [35, 42]', '0 %')
    """
    text = f"{round(figure.mean * 100)} %"
    if figure.low is None or figure.high is None:
        return text
    return f"{text} [{round(figure.low * 100)}, {round(figure.high * 100)}]"


def figure_in(figure: Interval, scale: float, unit: str) -> str:
    """Three digits in a unit, with the interval.

    >>> figure_in(Interval(0.0201, None, None, 1, ()), 1e3, "ms")
    '20.1 ms'
    """
    text = f"{figure.mean * scale:.3g} {unit}"
    if figure.low is None or figure.high is None:
        return text
    return f"{text} [{figure.low * scale:.3g}, {figure.high * scale:.3g}]"


def steps_in_words(steps: Interval) -> str:
    """Two or three digits: more would be a promise.

    >>> steps_in_words(Interval(15623.0, 14010.0, 17420.0, 5, ())), steps_in_words(Interval(83.4, None, None, 1, ()))
    ('15,600 [14,000, 17,400]', '84')
    """
    if steps.low is None or steps.high is None:
        return _rounded_steps(steps.mean)
    return f"{_rounded_steps(steps.mean)} [{_rounded_steps(steps.low)}, {_rounded_steps(steps.high)}]"


def _rounded_steps(value: float) -> str:
    places = max(0, math.floor(math.log10(value)) - 2) if value >= 1 else 0
    return f"{math.ceil(value) if places == 0 else round(value, -places):,.0f}"


def size_in_words(metric: Metric) -> str:
    """The practical size: how big a difference must be to matter."""
    if metric.unit == "fraction":
        return f"{metric.size * 100:g} points"
    return f"{metric.size * 100:g} %" if metric.kind == "ratio" or metric.relative else f"{metric.size:g}"


def interval_in_words(low: float | None, high: float | None, n: int, digits: str) -> str:
    """
    >>> interval_in_words(1.5, 1.7, 5, ".2f"), interval_in_words(None, None, 1, ".2f")
    ('(95 % interval 1.50 to 1.70, n = 5)', '(n = 1)')
    """
    if low is None or high is None:
        return f"(n = {n})"
    return f"(95 % interval {low:{digits}} to {high:{digits}}, n = {n})"


def difference_in_words(compared: Comparison, metric: Metric, *, digits: str, unit_of: str = "") -> str:
    """A difference in points or in the metric's own unit, with its interval; `unit_of` stands between the two."""
    assert compared.value is not None
    scale, unit, digits = (100, " points", digits) if metric.unit == "fraction" else (1, "", "+.3g")
    low, high = (None if value is None else value * scale for value in (compared.low, compared.high))
    return f"{compared.value * scale:{digits}}{unit}{unit_of} {interval_in_words(low, high, compared.n, digits)}"


def capitalized(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
