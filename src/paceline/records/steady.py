"""The steady state of a run: which marks count towards its throughput, by a stated rule. Arithmetic only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.records.events import Mark

WARMUP_STEPS = 5
RULE = f"the first {WARMUP_STEPS} steps are dropped; with no step beyond them, all steps count and `steady` is false"


@dataclass(frozen=True, slots=True)
class Pace:
    """Training samples a second over all ranks: samples and seconds are summed first, divided once."""

    throughput: float | None
    steady: bool
    dropped_steps: int


def pace(marks: Sequence[Mark]) -> Pace:
    """
    >>> mark = lambda n, s, w: Mark(0, 0, {}, n, n, s, w, 0.0)
    >>> pace([mark(40, 9.0, True)] + [mark(8, 0.1, False)] * 50).throughput
    80.0
    """
    kept = [mark for mark in marks if not mark.warmup]
    used = kept or list(marks)
    seconds = math.fsum(mark.seconds for mark in used)
    samples = sum(mark.num_global for mark in used)
    dropped = max((mark.iteration for mark in marks if mark.warmup), default=0) if kept else 0
    return Pace(samples / seconds if seconds > 0 else None, bool(kept), dropped)
