"""Paired ratios with an interval: what every benchmark here prints. No clock, no processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paceline.analysis.stats import interval


def ratio(base: Sequence[float], other: Sequence[float]) -> dict[str, Any]:
    """The geometric mean of paired ratios with its 95 % t interval on the log scale; one pair has a ratio and no interval."""
    found = interval([math.log(b / a) for a, b in zip(base, other, strict=True)])
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return {"ratio": math.exp(found.mean), "low": low, "high": high, "n": found.n}
