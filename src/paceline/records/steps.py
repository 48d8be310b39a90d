"""Numbers of steps as they are said, in a sentence and in a table alike."""

from __future__ import annotations

import math

from paceline.records.findings import Interval


def steps_in_words(steps: Interval) -> str:
    """Two or three digits: more would be a promise.

    >>> steps_in_words(Interval(15623.0, 14010.0, 17420.0, 5, ())), steps_in_words(Interval(83.4, None, None, 1, ()))
    ('15,600 [14,000, 17,400]', '84')
    """
    if steps.low is None or steps.high is None:
        return _round(steps.mean)
    return f"{_round(steps.mean)} [{_round(steps.low)}, {_round(steps.high)}]"


def _round(value: float) -> str:
    places = max(0, math.floor(math.log10(value)) - 2) if value >= 1 else 0
    return f"{math.ceil(value) if places == 0 else round(value, -places):,.0f}"
