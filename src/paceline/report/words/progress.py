"""How far a run is, in words."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.report.words.numbers import duration


@dataclass(frozen=True, slots=True)
class Glimpse:
    """Where the current run is; `epochs` None when it is told in steps."""

    phase: str
    epoch: int
    epochs: int | None
    iteration: int
    steps: int | None
    throughput: float | None


def words(glimpse: Glimpse, elapsed_s: float, waiting: str = "") -> str:
    """`waiting` says what a run that has not begun is waiting for."""
    if glimpse.phase == "starting":
        return f"{waiting or 'starting'}, {duration(elapsed_s)}"
    far = f"epoch {glimpse.epoch}/{glimpse.epochs}" if glimpse.epochs else f"step {glimpse.iteration}/{glimpse.steps}"
    rate = f", {glimpse.throughput:,.0f} samples/s" if glimpse.throughput else ""
    return f"{far}{rate}, {duration(elapsed_s)}"
