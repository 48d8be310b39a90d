"""Intervals and differences of small samples by Student's t. It knows numbers only, not what they measure.

t and not the bootstrap: in our simulations at n = 3 a nominal 95 % BCa interval covers 77 %, the t interval 95 %.
"""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.records.findings import Interval

LEVEL = 0.95


def _scipy_stats() -> Any:
    """scipy.stats, imported when first needed: it takes most of a second, and has no type stubs."""
    return importlib.import_module("scipy.stats")


def interval(values: Sequence[float]) -> Interval:
    """The mean with its t interval; one value has a mean and nothing else."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None, len(values), tuple(values))
    std = statistics.stdev(values)
    half = std / math.sqrt(len(values)) * float(_scipy_stats().t.ppf((1 + LEVEL) / 2, len(values) - 1))
    return Interval(mean, mean - half, mean + half, len(values), tuple(values), std)


def positive_interval(values: Sequence[float]) -> Interval:
    """The mean of times, rates, sizes: the same t interval, of the mean's logarithm (delta method), so that it stays above
    zero, as far below the mean as above it in ratio. The mean lies within. For small spreads it is the plain interval.

    Not the interval of the mean logarithm: that is one of the geometric mean, takes no zero, and with many runs of a long
    tail no longer holds the mean that stands beside it. Where a value is negative, it was no such quantity.
    """
    plain = interval(values)
    if plain.low is None or min(values) < 0 or plain.mean <= 0:
        return plain
    ratio = math.exp((plain.mean - plain.low) / plain.mean)
    return replace(plain, low=plain.mean / ratio, high=plain.mean * ratio)


@dataclass(frozen=True, slots=True)
class Effect:
    """How far one sample lies from another: candidate - baseline, or candidate / baseline. `p` is for "no effect"."""

    value: float
    low: float
    high: float
    n: int
    p: float

    def exp(self) -> Effect:
        return Effect(math.exp(self.value), math.exp(self.low), math.exp(self.high), self.n, self.p)


def _student(value: float, *, error: float, df: float, n: int) -> Effect:
    """An estimate and its standard error as an effect; without any error the effect is exact, and t is undefined."""
    if error == 0:
        return Effect(value, value, value, n, 1.0 if value == 0 else 0.0)
    t = _scipy_stats().t
    half = error * float(t.ppf((1 + LEVEL) / 2, df))
    return Effect(value, value - half, value + half, n, 2 * float(t.sf(abs(value) / error, df)))


def paired_difference(baseline: Sequence[float], candidate: Sequence[float]) -> Effect:
    """Paired t over candidate - baseline, value by value; at least two pairs."""
    differences = [c - b for b, c in zip(baseline, candidate, strict=True)]
    n = len(differences)
    error = statistics.stdev(differences) / math.sqrt(n)
    return _student(statistics.fmean(differences), error=error, df=n - 1, n=n)


def welch_difference(baseline: Sequence[float], candidate: Sequence[float]) -> Effect:
    """Welch's t for samples that share nothing; at least two values each. `n` is the smaller sample."""
    value, n = statistics.fmean(candidate) - statistics.fmean(baseline), min(len(baseline), len(candidate))
    squares = [(statistics.variance(values) / len(values), len(values) - 1) for values in (baseline, candidate)]
    error = sum(square for square, _ in squares)
    df = error**2 / sum(square**2 / df for square, df in squares) if error > 0 else n - 1
    return _student(value, error=math.sqrt(error), df=df, n=n)


def difference(baseline: Sequence[float], candidate: Sequence[float], *, paired: bool) -> Effect:
    return (paired_difference if paired else welch_difference)(baseline, candidate)


def ratio(baseline: Sequence[float], candidate: Sequence[float], *, paired: bool) -> Effect:
    """candidate / baseline as the ratio of geometric means; every value must be positive."""
    return difference([math.log(v) for v in baseline], [math.log(v) for v in candidate], paired=paired).exp()


def false_discovery(p_values: Sequence[float]) -> list[float]:
    """p-values after Benjamini-Hochberg: below 0.05, at most 5 % of the discoveries are expected to be none."""
    if not p_values:
        return []
    return [float(p) for p in _scipy_stats().false_discovery_control(list(p_values), method="bh")]
