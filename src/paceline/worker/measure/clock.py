"""The clock. A stopwatch that is always in exactly one part, so that parts add up to the time that passed by construction.

Without torch: start-up is timed from a process's first line, and importing torch is most of it.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Generator
from contextlib import contextmanager

from paceline.records.split import COMMUNICATION

# Parts of a step in whose middle ranks may meet. An evaluation or a start-up keeps its messages for itself.
_MEETING = frozenset({"forward", "backward", "optimizer"})


def wall() -> float:
    """Seconds since 1970, to lay ranks and the parent side by side."""
    return time.time()


def now() -> float:
    """The monotonic clock of this machine, the same in all its processes; every machine has its own zero."""
    return time.perf_counter()


class CollectiveTimes:
    """When this rank came to each conversation of all ranks (the others wait for it no longer), when it began to listen, and when it
    left: three numbers each, until somebody takes them."""

    def __init__(self) -> None:
        self._times = array("d"), array("d"), array("d")

    def __len__(self) -> int:
        return len(self._times[0])

    def add(self, came: float, listened: float, left: float) -> None:
        times = self._times
        times[0].append(came)
        times[1].append(listened)
        times[2].append(left)

    def take(self) -> tuple[array[float], array[float], array[float]]:
        times, self._times = self._times, (array("d"), array("d"), array("d"))
        return times


class Stopwatch:
    """`switch("forward")` ends the part before it. One dictionary update and one clock reading: about 0.3 us.

    A stay in `communication` is also kept as a spell: it begins when this rank comes to a collective, or with `arrived`, where it has
    said all it has to say and does something else before it listens.
    `on_switch` is called with (part that ended, part that begins); it is set for a few steps only.
    """

    def __init__(self, part: str) -> None:
        self._clock = now
        self._part = part
        self._since = self._began = self._clock()
        self._came: float | None = None
        self.parts: dict[str, float] = {}
        self.collective_times = CollectiveTimes()
        self.on_switch: Callable[[str, str], None] | None = None

    def switch(self, part: str) -> None:
        now, before = self._clock(), self._part
        self.parts[before] = self.parts.get(before, 0.0) + now - self._since
        if before == COMMUNICATION:
            self.collective_times.add(self._since if self._came is None else self._came, self._since, now)
            self._came = None
        self._part, self._since = part, now
        if self.on_switch is not None:
            self.on_switch(before, part)

    def arrived(self) -> None:
        """To the next stay in communication: nobody waits for this rank any more."""
        self._came = self._clock()

    @contextmanager
    def aside(self) -> Generator[None]:
        """A message in the middle of a part of a step: communication, then that part again. Who listens to the parts is not told:
        the forward pass has not ended."""
        part, on_switch = self._part, self.on_switch
        if part not in _MEETING:
            yield
            return
        self.on_switch = None
        self.switch(COMMUNICATION)
        try:
            yield
        finally:
            self.switch(part)
            self.on_switch = on_switch

    @property
    def part(self) -> str:
        return self._part

    def settle(self) -> None:
        """Everything begun so far is in the parts; a processor's clock is never behind."""

    def elapsed(self) -> float:
        """Seconds since the beginning, whatever the part."""
        return self._clock() - self._began

    def spent(self, *parts: str) -> float:
        """Seconds in these parts so far; the running part counts up to now."""
        running = self._clock() - self._since if self._part in parts else 0.0
        return running + sum(self.parts.get(part, 0.0) for part in parts)

    # ---- moments: for what runs beside the parts, like a message on its way while the rank computes ----

    def moment(self) -> float:
        return self._clock()

    def seconds(self, start: float, end: float) -> float:
        return end - start
