"""Paired ratios with an interval: what every benchmark here prints. No clock, no processes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy import stats


def ratio(base: Sequence[float], other: Sequence[float]) -> dict[str, float]:
    """The geometric mean of paired ratios with its 95 % t interval."""
    logs = [math.log(b / a) for a, b in zip(base, other, strict=True)]
    mean, half = (
        statistics.fmean(logs),
        stats.t.ppf(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)),
    )
    return {"ratio": math.exp(mean), "low": math.exp(mean - half), "high": math.exp(mean + half), "n": len(logs)}
