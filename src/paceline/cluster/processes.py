"""The processes of a box, found without a list: by the namespace they run in, or by a mark in their environment.

So none is overlooked where a list was never written. They are only ever ended here.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from paceline.base.errors import BadInput, RunFailed
from paceline.cluster import network
from paceline.cluster.box import FOLDER

# Every daemon is started with this and nothing else of our environment: a SLURM_CONF or LD_PRELOAD of the user's stays outside.
MARK = f"PACELINE_CLUSTER={FOLDER}"
_ROUNDS, _PAUSE_S = 250, 0.02


def start_ticks(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since boot; None when there is none. A pid used again has another start.

    Not psutil's create_time: that is a time of day, and moves when somebody sets the clock.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return None if state in "ZX" else int(rest[18])


def _space_of(path: Path) -> tuple[int, int] | None:
    """What identifies a namespace; None when there is none, or it is not ours to see (a zombie has none either)."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _our_spaces() -> set[tuple[int, int]]:
    return {space for name in network.spaces() if (space := _space_of(network.NETNS / name))}


def in_box() -> Iterator[psutil.Process]:
    """Every process that runs in the box, whoever started it, and its daemons."""
    spaces, disk = _our_spaces(), _space_of(Path("/proc/self/ns/mnt"))
    for pid in psutil.pids():
        proc = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            process = psutil.Process(pid)  # it remembers when the process began: a pid used again is never ended
            marked = MARK.encode() in (proc / "environ").read_bytes().split(b"\0")
            # A container on this machine may have a box of its own, in a folder of the same name that is not ours.
            ours = (marked and _space_of(proc / "ns/mnt") == disk) or _space_of(proc / "ns/net") in spaces
            if ours and pid != os.getpid():
                yield process


def end_all() -> bool:
    """Kills until no process is left: one that was forked meanwhile is found in the next round. True when there was
    any."""
    for attempt in range(_ROUNDS):
        living = list(in_box())
        if not living:
            return attempt > 0
        for process in living:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_PAUSE_S)
    pids = ", ".join(str(process.pid) for process in in_box())
    raise RunFailed(f"processes of the cluster do not end, though killed: {pids}", kind="stuck")


def check_outside() -> None:
    """A process inside a machine of the box cannot take the box down: it would be ended first."""
    if _space_of(Path("/proc/self/ns/net")) in _our_spaces():
        raise BadInput("this shell is on a machine of the cluster; leave it first (exit), then ask again")
