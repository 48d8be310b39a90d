"""Joining and leaving the world: device, store, process group, heartbeats. The only place a process group is made or destroyed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from paceline.base.errors import RunFailed
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.worker.world import mpi, reach
from paceline.worker.world.env import Identity, Meeting, meeting, use_interface
from paceline.worker.world.pulse import OnLoss, Pulse
from paceline.worker.world.ring import Kind, sent_bytes
from paceline.worker.world.shared_all_reduce import SharedAllReduce

# A rank that dies is noticed within seconds, by the parent or by its heartbeat; this is for a rank that hangs when there is no timeout.
_PATIENCE = timedelta(minutes=30)

# Our words -> torch's. NCCL has no messages from host memory, so small plain figures go by gloo beside it; "mpi" itself is
# reserved by torch for builds that have MPI compiled in.
_BACKENDS = {"gloo": "gloo", "mpi": "mpi4py", "nccl": "cpu:gloo,cuda:nccl"}


@dataclass(slots=True)
class Sent:
    """Counts the collectives this rank took part in: ranks that send each other nothing train several models.

    `bytes`: what this rank gave to them, its own part of each message. `ring_bytes`: what it sends for that where each is made by a
    ring (`ring.py`). `by_backend`: the all-reduces that went through the backend.
    """

    num: int = 0
    bytes: int = 0
    ring_bytes: float = 0.0
    by_backend: int = 0


@dataclass(frozen=True, slots=True)
class World:
    rank: int
    size: int
    local_rank: int
    host: str
    device: torch.device
    backend: str
    library: dict[str, str] = field(default_factory=dict[str, str])  # the MPI library and its transport
    pulse: Pulse | None = None
    sent: Sent = field(default_factory=Sent)
    shared_all_reduce: SharedAllReduce | None = None  # where messages=memory

    def count(self, kind: Kind, nbytes: int) -> None:
        """One collective, to which this rank gave `nbytes`. Called where the collective is, because only there its kind is known."""
        sent = self.sent
        sent.num += 1
        sent.bytes += nbytes
        sent.ring_bytes += sent_bytes(kind, nbytes, size=self.size)


def check_identity(identity: Identity, spec: Spec) -> None:
    """asked == got, before the first message: a world of the wrong size would train something else."""
    asked = spec.topology.world_size
    if identity.world_size != asked:
        raise RunFailed(
            f"asked for {asked} processes (on={spec.on}), but {identity.dialect} started a world of "
            f"{identity.world_size}: nothing was trained",
            kind="mismatch",
        )


def join(identity: Identity, spec: Spec, run: RunDir, on_loss: OnLoss) -> World:
    """The last step before training: data is loaded and loader processes are forked before there are threads and peers."""
    device = _device(identity, spec)
    timeout = timedelta(seconds=spec.timeout) if spec.timeout else _PATIENCE
    where = meeting() if spec.topology.machines > 1 else None
    if where is not None and (interface := reach.interface_towards(where.head, where.port)) is not None:
        use_interface(interface)
    if spec.backend == "mpi":
        mpi.arrive(identity.rank, identity.world_size)
        mpi.register()
    try:
        store = _store(identity, run, where, timeout)
        dist.init_process_group(
            _BACKENDS[spec.backend], store=dist.PrefixStore("world", store), rank=identity.rank,  # pyright: ignore[reportPrivateImportUsage]
            world_size=identity.world_size, timeout=timeout,
        )  # fmt: skip
    except (RuntimeError, OSError) as error:  # no threads or sockets left, no such interface, a port that is taken
        why = str(error).splitlines()[0][:200]
        raise RunFailed(
            f"rank {identity.rank} could not join the others over {spec.backend} ({why})", kind="launch"
        ) from error
    if dist.get_rank() != identity.rank:
        raise RunFailed(
            f"asked to be rank {identity.rank}, but the world calls it rank {dist.get_rank()}", kind="mismatch"
        )
    _check_places(store, identity, spec)
    pulse = None
    if where is not None:
        pulse = Pulse(identity, on_loss)
        pulse.start(store, address=reach.address_towards(where.head, where.port))
    shared_all_reduce = None
    if spec.messages == "memory":
        assert isinstance(spec.threads, int)
        shared_all_reduce = SharedAllReduce(
            store, rank=identity.rank, size=identity.world_size, threads=spec.threads, timeout_s=timeout.total_seconds()
        )
    return World(
        rank=dist.get_rank(), size=dist.get_world_size(), local_rank=identity.local_rank, host=identity.host,
        device=device, backend=_backend(device), library=mpi.library() if spec.backend == "mpi" else {}, pulse=pulse,
        shared_all_reduce=shared_all_reduce,
    )  # fmt: skip


def _check_places(store: Any, identity: Identity, spec: Spec) -> None:
    """asked == got: a launcher may put all ranks on one machine and call it two."""
    store.set(f"paceline/host/{identity.rank}", identity.host)
    ranks_per_host = Counter(store.get(f"paceline/host/{rank}").decode() for rank in range(identity.world_size))
    machines, processes = spec.topology.machines, spec.topology.processes
    if sorted(ranks_per_host.values()) != [processes] * machines:
        seen = ", ".join(f"{num} on {host}" for host, num in sorted(ranks_per_host.items()))
        raise RunFailed(
            f"asked for {machines} machines with {processes} processes each (on={spec.on}), but {identity.dialect} put the ranks "
            f"elsewhere: {seen}; nothing was trained",
            kind="mismatch",
        )


def _device(identity: Identity, spec: Spec) -> torch.device:
    if spec.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RunFailed("asked for device=cuda, but torch sees no GPU in this process", kind="mismatch")
    device = torch.device("cuda", identity.local_rank)
    torch.cuda.set_device(device)
    return device


def _store(identity: Identity, run: RunDir, where: Meeting | None, timeout: timedelta) -> Any:
    """The store through which the ranks find each other: that of torch's agent, or for one machine a file, which needs no port."""
    if identity.has_agent:
        store, _, _ = next(dist.rendezvous("env://", identity.rank, identity.world_size, timeout=timeout))  # pyright: ignore[reportPrivateImportUsage]
        return store
    if where is None:
        return dist.FileStore(str(run.rendezvous), identity.world_size)  # pyright: ignore[reportPrivateImportUsage]
    return dist.TCPStore(  # pyright: ignore[reportPrivateImportUsage]
        where.head, where.port, identity.world_size, is_master=identity.rank == 0, wait_for_workers=False,
        timeout=timedelta(seconds=max(60.0, where.within_s)),
    )  # fmt: skip


def _backend(device: torch.device) -> str:
    """The backend that carries tensors of this device, read back from the process group, by the name our setting has for it."""
    backends = dict(pair.split(":") for pair in str(dist.get_backend_config()).split(",") if ":" in pair)
    name = backends.get(device.type, dist.get_backend())
    return next((ours for ours, torchs in _BACKENDS.items() if torchs == name), name)


def leave(world: World) -> None:
    """An orderly end: goodbye to the heartbeats first, so that nobody takes our leaving for a loss."""
    if world.pulse is not None:
        world.pulse.close()
    if dist.is_initialized():
        dist.destroy_process_group()
    if world.backend == "mpi":
        mpi.finalize()
