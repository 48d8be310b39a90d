"""What ranks say to each other, split into waiting and transfer: when each came to a conversation, laid side by side on one clock.

The one who comes last ends everybody's waiting; what remains until a rank leaves is transfer. Nothing is sent in a step: times are
kept, and exchanged at the end. No barrier is added, so a run takes as long as it would without being watched.
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

# Three numbers a conversation: at this many they are exchanged before the end. The clocks of two machines drift apart by less than
# a millisecond in the minutes this takes, and that evenly.
MOST_KEPT = 16_384


@dataclass(frozen=True, slots=True)
class Reckoning:
    """Of some conversations, for one rank: seconds it waited; how often it came last, and how long the rest waited for it alone;
    how often it came after the others' mean, and how long after it, early arrivals taken off."""

    waited_s: float
    num_last: int
    delay_s: float
    num_behind: int
    lag_s: float


def reckon(came: Any, stayed: Any, *, rank: int, listened: Any = None) -> Reckoning:
    """`came`: arrivals [ranks, conversations] on one clock; `stayed`: how long this rank was in each. `listened`: when it began to
    wait, where it did something else after it had come.

    >>> came = np.array([[0.0, 10.0], [2.0, 10.5]])  # rank 1 is late twice
    >>> reckon(came, np.array([3.0, 1.0]), rank=0)
    Reckoning(waited_s=2.5, num_last=0, delay_s=0.0, num_behind=0, lag_s=-2.5)
    >>> reckon(came, np.array([1.0, 0.5]), rank=1)
    Reckoning(waited_s=0.0, num_last=2, delay_s=2.5, num_behind=2, lag_s=2.5)
    """
    last_two = np.sort(came, axis=0)[-2:]
    # Clocks agree to some microseconds only: nobody can have waited longer than it was there.
    waited = np.clip(last_two[1] - (came[rank] if listened is None else listened), 0.0, stayed)
    mine = came.argmax(axis=0) == rank
    behind = came[rank] - (came.sum(axis=0) - came[rank]) / (len(came) - 1)
    return Reckoning(
        waited_s=float(waited.sum()),
        num_last=int(mine.sum()),
        delay_s=float((last_two[1] - last_two[0])[mine].sum()),
        num_behind=int((behind > 0).sum()),
        lag_s=float(behind.sum()),
    )


class Arrivals:
    """Takes the stopwatch's spells of communication, now and then, and adds up what they were."""

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
        """All ranks together; the stopwatch must be settled, and in a part that is not communication."""
        if self._clocks is None:
            return
        self._clocks.ask()
        came, listened, left = (np.frombuffer(times) for times in self._watch.collective_times.take())
        fewest, most = agree(len(came), self._world)
        if fewest != most:
            raise RunFailed(
                f"one rank took part in {fewest} conversations and another in {most}: their arrivals cannot be laid side by side",
                kind="internal",
            )
        if not len(came):
            return
        rows = all_gather(torch.from_numpy(self._clocks.common(came)), self._world)
        delays = reckon(
            torch.stack(rows).numpy(), left - listened, rank=self._world.rank, listened=self._clocks.common(listened)
        )
        self.waited_s += delays.waited_s
        self.delay_s += delays.delay_s
        self.lag_s += delays.lag_s
        self.num_last += delays.num_last
        self.num_behind += delays.num_behind
        self.num += len(came)

    def split(self, parts: dict[str, float]) -> dict[str, float | None]:
        """The stopwatch's parts with `communication` as what it was. Several ranks that never talked did not train one model."""
        if self._clocks is None:
            return {**parts}
        spoken = parts.pop(COMMUNICATION, 0.0)
        sent = self._world.sent.num - self._sent_before
        if not self.num or spoken <= 0.0 or sent < self.num:
            raise RunFailed(
                f"{self._world.size} ranks trained and met {self.num} times, but only {sent} messages went between them: they may "
                f"have trained {self._world.size} models",
                kind="mismatch",
            )
        return {**parts, "waiting": self.waited_s, "transfer": spoken - self.waited_s}

    @property
    def ahead_s(self) -> float:
        """How far this machine's time of day is ahead of rank 0's."""
        return 0.0 if self._clocks is None else self._clocks.ahead_s

    def late(self) -> dict[str, float]:
        """`last`, `delay_s`: the one who ended everybody's waiting. `behind`, `lag_s`: against the mean of the others."""
        if not self.num:
            return {}
        return {
            "of": self.num, "last": self.num_last, "delay_s": self.delay_s, "behind": self.num_behind, "lag_s": self.lag_s,
        }  # fmt: skip
