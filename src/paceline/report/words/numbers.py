"""Numbers as people read them: durations, bytes, percent, intervals. Strings only; it rounds and scales, it computes nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # half the commands print a duration and nothing else
    from paceline.records.findings import Comparison, Interval, Metric

NONE = "-"
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Scale:
    """One unit for a figure and everything printed beside it: multiply, then write the word."""

    factor: float
    word: str


def scale(unit: str, like: float) -> Scale:
    """The unit in which a number of this size is easy to read."""
    size = abs(like)
    if unit == "fraction":
        return Scale(100, "%")
    if unit == "s" and 0 < size < 1:
        return Scale(1e3, "ms") if size >= 1e-3 else Scale(1e6, "µs")
    if unit == "bytes":
        power = min(int(math.log2(size) // 10), len(_BYTES) - 1) if size >= 1 else 0
        return Scale(2.0 ** (-10 * power), _BYTES[power])
    return Scale(1, unit)


def _decimals(value: float, error: float) -> int:
    """Two digits of the error, but at least three and at most five of the value."""
    of_value = 2 - math.floor(math.log10(abs(value))) if value else 2
    of_error = 1 - math.floor(math.log10(error)) if error > 0 else 0
    return max(0, min(6, of_value), min(6, of_error, of_value + 2))


def _grouped(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}" if abs(value) >= 10_000 else f"{value:.{decimals}f}"


def number(value: float | None, unit: str = "") -> str:
    """
    >>> number(0.9777, "fraction"), number(198.99, "s"), number(0.0123, "s"), number(3 * 2**20, "bytes")
    ('97.77 %', '199 s', '12.3 ms', '3.00 MiB')
    """
    if value is None:
        return NONE
    how = scale(unit, value)
    shown = value * how.factor
    return _join(_grouped(shown, 2 if unit == "fraction" else _decimals(shown, 0)), how.word)


def as_printed(value: float, unit: str) -> str:
    """A figure quoted from elsewhere, with all the digits it was given in.

    >>> as_printed(198.99, "s"), as_printed(0.8555, "fraction"), as_printed(167.25e6, "bytes")
    ('198.99 s', '85.55 %', '167.25 MB')
    """
    if unit == "bytes":  # reports count in thousands
        power = next((p for p in (3, 2, 1) if abs(value) >= 1000**p), 0)
        return f"{round(value / 1000**power, 6):.10g} {('B', 'KB', 'MB', 'GB')[power]}"
    return _join(f"{value * 100:.2f}", "%") if unit == "fraction" else _join(f"{value:g}", unit)


def _join(text: str, word: str) -> str:
    return f"{text} {word}" if word else text


def interval(figure: Interval | None, unit: str = "") -> str:
    """mean ± standard deviation [95 % interval]

    >>> from paceline.records.findings import Interval
    >>> interval(Interval(12.34, 11.9, 12.8, 3, (), 0.18), "s")
    '12.34 ± 0.18 s [11.90, 12.80]'
    """
    if figure is None:
        return NONE
    if figure.low is None or figure.high is None or figure.std is None:
        return number(figure.mean, unit)
    how = scale(unit, figure.mean)
    mean, low, high, std = (v * how.factor for v in (figure.mean, figure.low, figure.high, figure.std))
    places = 2 if unit == "fraction" else _decimals(mean, std)
    return f"{_join(f'{_grouped(mean, places)} ± {std:.{places}f}', how.word)} [{_grouped(low, places)}, {_grouped(high, places)}]"


def duration(seconds: float | None) -> str:
    """
    >>> duration(0.5), duration(75), duration(7265)
    ('500 ms', '1 min 15 s', '2 h 1 min')
    """
    if seconds is None or abs(seconds) < 60:
        return number(seconds, "s")
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def percent(value: float | None) -> str:
    return NONE if value is None else f"{value * 100:.0f} %"


def share(figure: Interval | None, places: int = 1) -> str:
    if figure is None:
        return NONE
    shares = (figure.mean, figure.low, figure.high)
    # Adding 0.0 to a rounded value leaves no "-0.0".
    mean, low, high = (None if v is None else f"{round(v * 100, places) + 0.0:.{places}f}" for v in shares)
    return f"{mean} %" + (f" [{low}, {high}]" if low is not None and high is not None else "")


def unexplained(value: float | None) -> str:
    """What no part of the wall time explains, in hundredths of a per cent."""
    return NONE if value is None else f"{round(value * 100, 2) + 0.0:.2f} %"


def times(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A ratio, with its interval where it has one.

    >>> times(1.617, 1.51, 1.74)
    '1.62x [1.51, 1.74]'
    """
    if value is None:
        return NONE
    around = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    return f"{value:.2f}x{around}"


def effect(compared: Comparison, metric: Metric | None) -> str:
    """A comparison's own figure: a ratio as `0.62x`, a difference in points or in the metric's unit."""
    if compared.kind == "ratio" or compared.value is None:
        return times(compared.value, compared.low, compared.high)
    fraction = metric is not None and metric.unit == "fraction"
    factor, word = (100, " points") if fraction else (1, "")
    if metric is not None and metric.unit == "bytes":
        how = scale("bytes", compared.value)
        factor, word = how.factor, f" {how.word}"
    shown = [None if v is None else v * factor for v in (compared.value, compared.low, compared.high)]
    value, low, high = shown
    assert value is not None
    places = 2 if fraction else _decimals(value, (high - low) / 2 if high is not None and low is not None else 0)
    around = f" [{low:+.{places}f}, {high:+.{places}f}]" if low is not None and high is not None else ""
    return f"{value:+.{places}f}{word}{around}"


def probability(p: float | None) -> str:
    return NONE if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"
