"""Machines times processes, and every division by the world size that Paceline makes. Nobody else divides."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(r"^\s*(\d+)\s*[xX×]\s*(\d+)\s*$")


@dataclass(frozen=True, slots=True)
class Topology:
    """`on=2x4`: two machines with four processes each."""

    machines: int
    processes: int

    @property
    def world_size(self) -> int:
        return self.machines * self.processes

    def __str__(self) -> str:
        return f"{self.machines}x{self.processes}"


def parse(text: str) -> Topology:
    """
    >>> parse("1x2").world_size
    2
    """
    match = _FORM.match(text)
    if match is None:
        raise ValueError("must be MACHINESxPROCESSES, for example 1x2 (one machine, two processes)")
    machines, processes = int(match[1]), int(match[2])
    if machines < 1 or processes < 1:
        raise ValueError("needs at least one machine and one process, for example 1x1")
    return Topology(machines, processes)


def share(num: int, *, rank: int, world_size: int) -> tuple[int, int]:
    """The half-open range of `num` things that belongs to `rank`: contiguous, disjoint, complete, sizes differ by at most one.

    >>> [share(5, rank=r, world_size=3) for r in range(3)]
    [(0, 2), (2, 4), (4, 5)]
    """
    each, extra = divmod(num, world_size)
    start = rank * each + min(rank, extra)
    return start, start + each + (rank < extra)


def global_batch(batch_per_rank: int, topology: Topology, *, accumulate: int = 1) -> int:
    """A batch that grows with the world, and with the micro-batches of a step, as in other tools: an explicit choice, because it
    changes the training (report B).

    >>> global_batch(32, parse("1x2"), accumulate=4)
    256
    """
    return batch_per_rank * topology.world_size * accumulate


def threads_per_rank(cores: int, topology: Topology) -> int:
    """As many threads as leave no core fought over; at least one."""
    return max(1, cores // topology.processes)
