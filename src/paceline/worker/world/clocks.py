"""One clock for all ranks: how far the monotonic clock of each machine is from rank 0's. Processes of one machine share theirs.

Asked by small messages there and back, as NTP does it: the answer of the quickest exchange is wrong by at most half its round
trip. Clocks drift by some milliseconds an hour, so they are measured again whenever times are exchanged, and interpolated between two
measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from paceline.worker.world.collectives import all_gather, together
from paceline.worker.world.join import World

_EXCHANGES = 12
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """What all processes of one kernel share, containers and the machines of a cluster in a box among them. None: not Linux."""
    return _BOOT.read_text().strip() if _BOOT.exists() else None


def machine_id(world: World) -> bytes:
    """36 bytes that two processes share exactly when they share a kernel, and so its clock."""
    return (boot_id() or world.host).encode()[:36].ljust(36)


class Clocks:
    """`common(times)`: this rank's readings on rank 0's clock. Every rank must make the same calls; with one machine nothing is sent."""

    def __init__(
        self, world: World, now: Callable[[], float], wall: Callable[[], float], *, machine: bytes | None = None
    ) -> None:
        self._world, self._now = world, now
        mine = torch.frombuffer(bytearray(machine or machine_id(world)), dtype=torch.uint8)
        machines = [bytes(row.tolist()) for row in all_gather(mine, world)]
        self._leader = machines.index(machines[world.rank])
        self._leaders = sorted({machines.index(name) for name in machines} - {0})
        self._points: list[tuple[float, float]] = []  # (this rank's time, how far rank 0 is ahead of it)
        self.round_trip_s = 0.0  # of the quickest exchange: times are right to half of it
        self.ask()
        self.ahead_s = self._ahead(wall)

    @property
    def one_machine(self) -> bool:
        return not self._leaders

    def _ahead(self, wall: Callable[[], float]) -> float:
        """How far this machine's time of day is ahead of rank 0's: both are read against the one clock."""
        if self.one_machine:
            return 0.0
        days = wall() - float(self.common(np.array([self._now()]))[0])
        return days - float(all_gather(torch.tensor([days], dtype=torch.float64), self._world)[0])

    def ask(self) -> None:
        """Measure again. The first rank of each machine asks rank 0, one machine after the other; the others learn its answer."""
        if self.one_machine:
            return
        offset = trip = 0.0
        with together():
            for leader in self._leaders:
                if self._world.rank == leader:
                    offset, trip = self._exchange()
                elif self._world.rank == 0:
                    self._answer(leader)
        answers = all_gather(torch.tensor([offset, trip], dtype=torch.float64), self._world)
        self._points = [*self._points[-1:], (self._now(), float(answers[self._leader][0]))]
        self.round_trip_s = max(float(answer[1]) for answer in answers)

    def _exchange(self) -> tuple[float, float]:
        best = (0.0, float("inf"))
        said = torch.zeros(1, dtype=torch.float64)
        for _ in range(_EXCHANGES):
            began = self._now()
            dist.send(said, dst=0)
            dist.recv(said, src=0)
            ended = self._now()
            if ended - began < best[1]:
                best = (float(said) - (began + ended) / 2, ended - began)
        return best

    def _answer(self, leader: int) -> None:
        said = torch.zeros(1, dtype=torch.float64)
        for _ in range(_EXCHANGES):
            dist.recv(said, src=leader)
            said.fill_(self._now())
            dist.send(said, dst=leader)

    def common(self, times: Any) -> Any:
        if self.one_machine:
            return times
        at, ahead = zip(*self._points, strict=True)
        return times + np.interp(times, at, ahead)
