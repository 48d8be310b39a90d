"""Splits the time in collectives into waiting and transfer, by the times at which each rank arrived, all on one clock.

A rank waits until the last rank has arrived; the rest, until it leaves, is transfer. Steps only keep the times, and the ranks exchange
them at the end. No barrier is added, so a run takes as long as it would without being measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.records.split import COMMUNICATION
from paceline.worker.measure.clock import Stopwatch, now, wall
from paceline.worker.world.clocks import Clocks
from paceline.worker.world.collectives import agree, all_gather
from paceline.worker.world.join import World

# After this many collectives the times are exchanged, to bound the memory they take. In the minutes between two exchanges the clocks
# of two machines drift apart by less than a millisecond, and evenly.
MOST_KEPT = 16_384


@dataclass(frozen=True, slots=True)
class WaitTimes:
    """One rank's share of some collectives. `waited_s`: how long it waited. `num_last`: how often it arrived last; `delay_s`: how long
    the others then waited for it alone. `num_behind`: how often it arrived after the mean of the others; `lag_s`: how long after it,
    summed over all collectives, where an early arrival counts as negative."""

    waited_s: float
    num_last: int
    delay_s: float
    num_behind: int
    lag_s: float


def wait_times(arrived: Any, stayed: Any, *, rank: int, wait_began: Any = None) -> WaitTimes:
    """`arrived`: times [ranks, collectives] on one clock; `stayed`: seconds that this rank was in each collective. `wait_began`: when
    this rank began to wait, if it did other work after it had arrived.

    >>> arrived = np.array([[0.0, 10.0], [2.0, 10.5]])  # rank 1 is late twice
    >>> wait_times(arrived, np.array([3.0, 1.0]), rank=0)
    WaitTimes(waited_s=2.5, num_last=0, delay_s=0.0, num_behind=0, lag_s=-2.5)
    >>> wait_times(arrived, np.array([1.0, 0.5]), rank=1)
    WaitTimes(waited_s=0.0, num_last=2, delay_s=2.5, num_behind=2, lag_s=2.5)
    """
    last_two = np.sort(arrived, axis=0)[-2:]
    # Clocks agree only to some microseconds, and no rank can have waited longer than it stayed.
    waited = np.clip(last_two[1] - (arrived[rank] if wait_began is None else wait_began), 0.0, stayed)
    mine = arrived.argmax(axis=0) == rank
    behind = arrived[rank] - (arrived.sum(axis=0) - arrived[rank]) / (len(arrived) - 1)
    return WaitTimes(
        waited_s=float(waited.sum()),
        num_last=int(mine.sum()),
        delay_s=float((last_two[1] - last_two[0])[mine].sum()),
        num_behind=int((behind > 0).sum()),
        lag_s=float(behind.sum()),
    )


class Arrivals:
    """Takes the times of the collectives from the stopwatch now and then, and adds up how long this rank waited in them."""

    def __init__(self, world: World, watch: Stopwatch) -> None:
        self._world, self._watch = world, watch
        self._clocks = Clocks(world, now, wall) if world.size > 1 else None
        self._sent_before = world.sent.num
        self.waited_s, self.delay_s, self.lag_s = 0.0, 0.0, 0.0
        self.num, self.num_last, self.num_behind = 0, 0, 0

    @property
    def full(self) -> bool:
        return len(self._watch.collective_times) >= MOST_KEPT

    def exchange(self) -> None:
        """Called by all ranks together, after `settle` of the stopwatch, while its part is not `communication`."""
        if self._clocks is None:
            return
        self._clocks.ask()
        arrived, wait_began, left = (np.frombuffer(times) for times in self._watch.collective_times.take())
        fewest, most = agree(len(arrived), self._world)
        if fewest != most:
            raise RunFailed(
                f"one rank took part in {fewest} collectives and another in {most}: their arrivals cannot be laid side by side",
                kind="internal",
            )
        if not len(arrived):
            return
        rows = all_gather(torch.from_numpy(self._clocks.common(arrived)), self._world)
        delays = wait_times(
            torch.stack(rows).numpy(),
            left - wait_began,
            rank=self._world.rank,
            wait_began=self._clocks.common(wait_began),
        )
        self.waited_s += delays.waited_s
        self.delay_s += delays.delay_s
        self.lag_s += delays.lag_s
        self.num_last += delays.num_last
        self.num_behind += delays.num_behind
        self.num += len(arrived)

    def split(self, parts: dict[str, float]) -> dict[str, float | None]:
        """The stopwatch's parts, with `communication` split into `waiting` and `transfer`. Fails if several ranks sent each other too
        few messages to have trained one model."""
        if self._clocks is None:
            return {**parts}
        communication_s = parts.pop(COMMUNICATION, 0.0)
        sent = self._world.sent.num - self._sent_before
        if not self.num or communication_s <= 0.0 or sent < self.num:
            raise RunFailed(
                f"{self._world.size} ranks trained and met {self.num} times, but only {sent} messages went between them: they may "
                f"have trained {self._world.size} models",
                kind="mismatch",
            )
        return {**parts, "waiting": self.waited_s, "transfer": communication_s - self.waited_s}

    @property
    def ahead_s(self) -> float:
        """How far this machine's time of day is ahead of rank 0's."""
        return 0.0 if self._clocks is None else self._clocks.ahead_s

    def late(self) -> dict[str, float]:
        """How late this rank was, for the record: the counts and seconds of `WaitTimes` over `of` collectives."""
        if not self.num:
            return {}
        return {
            "of": self.num, "last": self.num_last, "delay_s": self.delay_s, "behind": self.num_behind, "lag_s": self.lag_s,
        }  # fmt: skip
