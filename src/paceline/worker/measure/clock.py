"""The clock. A stopwatch that is always in exactly one part, so that parts add up to the time that passed by construction.

Without torch: start-up is timed from a process's first line, and importing torch is most of it.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

from paceline.records.split import COMMUNICATION

# Parts that a collective may interrupt (`aside`). Elsewhere, in an evaluation or at start-up, its time stays in the running part.
_MEETING = frozenset({"forward", "backward", "optimizer"})


def wall() -> float:
    """Seconds since 1970, to compare times of the ranks with those of the parent."""
    return time.time()


def now() -> float:
    """The monotonic clock of this machine, the same in all its processes; every machine has its own zero."""
    return time.perf_counter()


def busy_s() -> float:
    """Seconds that this process has computed so far, all threads together: other programs do not count."""
    return time.process_time()


class CollectiveTimes:
    """Three times for each collective: when this rank arrived (from then on no other rank waits for it), when it began to wait for the
    others, and when it left. They are kept until `take`."""

    def __init__(self) -> None:
        self._times = array("d"), array("d"), array("d")

    def __len__(self) -> int:
        return len(self._times[0])

    def add(self, arrived: float, wait_began: float, left: float) -> None:
        times = self._times
        times[0].append(arrived)
        times[1].append(wait_began)
        times[2].append(left)

    def take(self) -> tuple[array[float], array[float], array[float]]:
        times, self._times = self._times, (array("d"), array("d"), array("d"))
        return times


T = TypeVar("T")
_CLOSE_S, _TRIES = 50e-6, 10


def with_wall(read: Callable[[], T]) -> tuple[T, float]:
    """What `read` gives, and the time of day at that moment. On a busy machine a process may be put aside between two readings, for
    tens of milliseconds that would be in no part; then both are read again."""
    began, value, t = now(), read(), wall()
    for _ in range(_TRIES):
        if now() - began < _CLOSE_S:
            break
        began, value, t = now(), read(), wall()
    return value, t


class Stopwatch:
    """`switch("forward")` ends the part before it. One dictionary update and one clock reading: about 0.3 us.

    Each stay in `communication` is one collective, and its times go to `collective_times`. The rank arrives when it switches to that
    part, or earlier: at `arrived`, if it has published its message and does other work before it waits.
    `on_switch` is called with (part that ended, part that begins); it is set for a few steps only.
    """

    def __init__(self, part: str) -> None:
        self._clock = now
        self._part = part
        self._since = self._began = self._clock()
        self._arrived: float | None = None
        self.parts: dict[str, float] = {}
        self.collective_times = CollectiveTimes()
        self.on_switch: Callable[[str, str], None] | None = None

    def switch(self, part: str) -> None:
        now, before = self._clock(), self._part
        self.parts[before] = self.parts.get(before, 0.0) + now - self._since
        if before == COMMUNICATION:
            self.collective_times.add(self._since if self._arrived is None else self._arrived, self._since, now)
            self._arrived = None
        self._part, self._since = part, now
        if self.on_switch is not None:
            self.on_switch(before, part)

    def arrived(self) -> None:
        """This rank has published its message for the next collective: from now on no other rank waits for it."""
        self._arrived = self._clock()

    @contextmanager
    def aside(self) -> Generator[None]:
        """A collective in the middle of a part: the block counts as `communication`, then the part goes on. `on_switch` is not called,
        because the part (a forward pass) has not ended."""
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
        """Bring `parts` up to date. Nothing to do on a CPU; on a GPU this waits for the device (`Timeline`)."""

    def elapsed(self) -> float:
        """Seconds since the beginning, whatever the part."""
        return self._clock() - self._began

    def spent(self, *parts: str) -> float:
        """Seconds in these parts so far; the running part counts up to now."""
        running = self._clock() - self._since if self._part in parts else 0.0
        return running + sum(self.parts.get(part, 0.0) for part in parts)

    # ---- moments: to time what overlaps the parts, like a message that is sent while the rank computes ----

    def moment(self) -> float:
        return self._clock()

    def seconds(self, start: float, end: float) -> float:
        return end - start
