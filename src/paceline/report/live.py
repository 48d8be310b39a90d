"""The line that moves on a terminal while runs are going, and the lines that stay. What they say is in `words/progress.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


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
            self._status.console.print(text, markup=False, highlight=False, soft_wrap=True)  # paths in it can be copied
        else:
            sys.stderr.write(f"{text}\n")
