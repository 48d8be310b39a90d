"""Joining and leaving the world: device, threads, process group. The only place a process group is made or destroyed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from paceline.base.errors import RunFailed
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.worker.world.env import Identity

# A rank that dies is noticed by the parent within a second; this is for a rank that hangs when there is no timeout.
_PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class World:
    rank: int
    size: int
    local_rank: int
    host: str
    device: torch.device
    backend: str


def check_identity(identity: Identity, spec: Spec) -> None:
    """asked == got, before the first message: a world of the wrong size would train something else."""
    asked = spec.topology.world_size
    if identity.world_size != asked:
        raise RunFailed(
            f"asked for {asked} processes (on={spec.on}), but {identity.dialect} started a world of "
            f"{identity.world_size}: nothing was trained",
            kind="mismatch",
        )


def join(identity: Identity, spec: Spec, run: RunDir) -> World:
    """The last step before training: data is loaded and loader processes are forked before there are threads and peers."""
    device = torch.device("cpu")
    if spec.device == "cuda":
        if not torch.cuda.is_available():
            raise RunFailed("asked for device=cuda, but torch sees no GPU in this process", kind="mismatch")
        device = torch.device("cuda", identity.local_rank)
        torch.cuda.set_device(device)
    timeout = timedelta(seconds=spec.timeout) if spec.timeout else _PATIENCE
    # Ranks of one machine meet at a file: it needs no port, so nothing can be taken or guessed. torchrun has its own place.
    store = None if identity.dialect == "torchrun" else dist.FileStore(str(run.rendezvous), identity.world_size)  # pyright: ignore[reportPrivateImportUsage]
    try:
        dist.init_process_group(
            spec.backend, store=store, rank=identity.rank, world_size=identity.world_size, timeout=timeout
        )
    except RuntimeError as error:  # no threads or sockets left, an interface that is not there: the machine's doing
        why = str(error).splitlines()[0][:200]
        raise RunFailed(
            f"rank {identity.rank} could not join the others over {spec.backend} ({why})", kind="launch"
        ) from error
    if dist.get_rank() != identity.rank:
        raise RunFailed(
            f"asked to be rank {identity.rank}, but the world calls it rank {dist.get_rank()}", kind="mismatch"
        )
    return World(
        rank=dist.get_rank(), size=dist.get_world_size(), local_rank=identity.local_rank, host=identity.host,
        device=device, backend=dist.get_backend(),
    )  # fmt: skip


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
