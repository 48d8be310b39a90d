"""The clock. A stopwatch that is always in exactly one part, so that parts add up to the time that passed by construction.

Without torch: start-up is timed from a process's first line, and importing torch is most of it.
"""

from __future__ import annotations

import time


def wall() -> float:
    """Seconds since 1970, to lay ranks and the parent side by side."""
    return time.time()


class Stopwatch:
    """`switch("forward")` ends the part before it. One dictionary update and one clock reading: about 0.2 us."""

    def __init__(self, part: str) -> None:
        self._clock = time.perf_counter
        self._part = part
        self._since = self._began = self._clock()
        self.parts: dict[str, float] = {}

    def switch(self, part: str) -> None:
        now = self._clock()
        self.parts[self._part] = self.parts.get(self._part, 0.0) + now - self._since
        self._part, self._since = part, now

    def elapsed(self) -> float:
        """Seconds since the beginning, whatever the part."""
        return self._clock() - self._began

    def spent(self, *parts: str) -> float:
        """Seconds in these parts so far; the running part counts up to now."""
        running = self._clock() - self._since if self._part in parts else 0.0
        return running + sum(self.parts.get(part, 0.0) for part in parts)
