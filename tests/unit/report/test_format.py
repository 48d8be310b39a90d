"""Numbers as people read them."""

from __future__ import annotations

import doctest

import pytest

from paceline.records.findings import Comparison, Interval, Metric
from paceline.report import series
from paceline.report.words import numbers as show

ACCURACY = Metric("test.accuracy", "test accuracy", "fraction", "higher", "difference", 0.002)


@pytest.mark.parametrize("module", [show, series])
def test_the_examples_in_the_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "s", "-"),
        (0.0, "s", "0.00 s"),
        (12.345, "s", "12.3 s"),
        (0.00002, "s", "20.0 µs"),
        (123456.7, "samples/s", "123,457 samples/s"),
        (0.5, "fraction", "50.00 %"),
        (1023, "bytes", "1023 B"),
        (5 * 2**30, "bytes", "5.00 GiB"),
        (-3.2, "", "-3.20"),
    ],
)
def test_numbers(value: float | None, unit: str, text: str) -> None:
    assert show.number(value, unit) == text


def test_intervals_show_as_many_digits_as_the_spread_allows() -> None:
    assert show.interval(Interval(198.99, 198.95, 199.03, 5, (), 0.032), "s") == "198.99 ± 0.03 s [198.95, 199.03]"
    assert show.interval(Interval(0.9777, 0.97, 0.98, 3, (), 0.002), "fraction") == "97.77 ± 0.20 % [97.00, 98.00]"


def test_one_value_has_no_interval() -> None:
    assert show.interval(Interval(12.0, None, None, 1, (12.0,)), "s") == "12.0 s"
    assert show.interval(None) == "-"


def _comparison(kind: str, value: float | None, low: float | None, high: float | None) -> Comparison:
    return Comparison("m", "a", "b", kind, value, low, high, 5, 0.01, True, "better", "shown")  # type: ignore[arg-type]


def test_effects() -> None:
    assert show.effect(_comparison("ratio", 0.617, 0.58, 0.66), None) == "0.62x [0.58, 0.66]"
    assert show.effect(_comparison("difference", -0.0431, -0.05, -0.036), ACCURACY) == "-4.31 points [-5.00, -3.60]"
    assert show.effect(_comparison("difference", 0.25, None, None), None) == "+0.250"
