"""What a person sees while runs are going: one line that moves on a terminal, one line a finished run everywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.report.format import duration

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


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
    """The moving line on stderr; nothing at all where that is not a terminal, so that logs stay readable.

    `open` makes the console, when the line first moves: rich takes time to import, and by then the ranks are importing torch.
    """

    def __init__(self, open: Callable[[], Console]) -> None:
        self._open = open
        self._status: Status | None = None
        self._moves = sys.stderr.isatty()

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._moves = False
        if self._status is not None:
            self._status.stop()

    def show(self, text: Callable[[], str]) -> None:
        if not self._moves:
            return
        if self._status is None:
            self._status = self._open().status("", spinner="dots")
            self._status.start()
        self._status.update(text())

    def keep(self, text: str) -> None:
        """A line that stays."""
        if self._status is not None:
            self._status.console.print(text, markup=False, highlight=False)
        else:
            sys.stderr.write(f"{text}\n")
