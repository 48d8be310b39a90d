"""Each launcher's dialect of "who am I", translated once. The only reader of rank variables."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.base.errors import RunFailed


@dataclass(frozen=True, slots=True)
class Identity:
    """What the launcher told this process; compared with the spec before anything else."""

    rank: int
    world_size: int
    local_rank: int
    dialect: str
    host: str


# dialect -> (rank, world size, local rank), in the order they are tried.
_DIALECTS = {
    "local": ("PACELINE_RANK", "PACELINE_WORLD_SIZE", "PACELINE_LOCAL_RANK"),
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
}


def supervisor() -> int | None:
    """The process on this machine that must be alive for us to go on, where there is one."""
    found = os.environ.get("PACELINE_SUPERVISOR", "")
    return int(found) if found.isdigit() else None


def identify(variables: Mapping[str, str] | None = None) -> Identity:
    found = os.environ if variables is None else variables
    for dialect, names in _DIALECTS.items():
        if all(name in found for name in names):
            try:
                rank, world_size, local_rank = (int(found[name]) for name in names)
            except ValueError:
                raise RunFailed(f"the launcher's {', '.join(names)} are not numbers", kind="launch") from None
            return Identity(rank, world_size, local_rank, dialect, socket.gethostname())
    raise RunFailed("no launcher variables found: a worker is started by `paceline run`, not by hand", kind="launch")
