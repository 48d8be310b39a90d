"""Which processes a command of ours still has, however they came to be: by a mark that all of them inherit. Test support only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

MARK = "PACELINE_TEST_CASE"
T = TypeVar("T")


def marked(case: Path) -> dict[str, str]:
    """The environment to start a command with, so that `alive` finds it and all it starts; `case` is the test's own folder."""
    return {MARK: str(case)}


def alive(case: Path) -> list[str]:
    """Command lines of the marked processes that live; a zombie does not."""
    found: list[str] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == str(case) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid}: {' '.join(process.cmdline())}")
    return found


def left_after(case: Path, *, seconds: float) -> list[str]:
    """What is still alive when the time is up; returns as soon as nothing is."""
    deadline = time.monotonic() + seconds
    while (found := alive(case)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def wait_for(what: str, look: Callable[[], T | None], seconds: float = 60.0) -> T:
    """What `look` finds, as soon as it does. A minute is for a busy machine: nothing waits that long by design."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {seconds:g} s")
