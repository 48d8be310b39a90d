"""`pin=cores`: each rank keeps to its own cores, as many as it has threads. The kernel keeps it; what it keeps is read back.

A rank that moves from core to core leaves its caches behind, and two on one core wait for each other. Which cores: of those this
process may use at all, in their order, local rank 0 takes the first ones.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.world.env import Identity


def pin(spec: Spec, identity: Identity) -> list[int] | None:
    """The cores this rank keeps to; None where it goes wherever the system puts it. Before there are threads: they inherit it."""
    if spec.pin == "none":
        return None
    assert isinstance(spec.threads, int)
    if sys.platform != "linux":
        raise RunFailed(f"pin=cores: only Linux is asked for it here, and this is {sys.platform}", kind="mismatch")
    allowed, first = sorted(os.sched_getaffinity(0)), identity.local_rank * spec.threads
    cores = allowed[first : first + spec.threads]
    if len(cores) < spec.threads:
        raise RunFailed(
            f"pin=cores: rank {identity.rank} should have cores {first} to {first + spec.threads - 1} of those this process may "
            f"use, and there are {len(allowed)}: use fewer processes or threads, or pin=none",
            kind="mismatch",
        )
    for thread in _threads():  # libraries may have started some while they were imported
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(thread, cores)
    return cores


def pinned(cores: list[int] | None) -> str:
    """Read back: what every thread of this process is really held to."""
    return "cores" if cores is not None and all(held == set(cores) for held in _held()) else "none"


def _held() -> Iterator[set[int]]:
    for thread in _threads():
        with contextlib.suppress(ProcessLookupError):
            yield os.sched_getaffinity(thread)


def _threads() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")]
