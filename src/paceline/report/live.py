"""What a person sees while runs are going: one line that moves on a terminal, one line a finished run everywhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.status import Status

from paceline.report.format import duration


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


class Line:
    """The moving line; nothing at all where the console is not a terminal, so that logs stay readable."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None

    def __enter__(self) -> Line:
        if self._console.is_terminal:
            self._status = self._console.status("", spinner="dots")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, text: Callable[[], str]) -> None:
        if self._status is not None:
            self._status.update(text())

    def keep(self, text: str) -> None:
        """A line that stays."""
        self._console.print(text, markup=False, highlight=False)
