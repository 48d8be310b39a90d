"""The environment variables by which each launcher tells a process its rank. Only this file reads or writes them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import RunFailed


@dataclass(frozen=True, slots=True)
class Identity:
    """What the launcher told this process; compared with the spec before anything else."""

    rank: int
    world_size: int
    local_rank: int
    dialect: str
    host: str
    has_agent: bool = False  # torch's agent keeps a store for its ranks, at MASTER_ADDR


_BOOT = Path("/proc/sys/kernel/random/boot_id")


def this_machine() -> str | None:
    """The same for every process under one kernel, whatever host name it sees (containers, nodes of a cluster in a box); another one
    on every machine and after every boot. None where the system does not tell."""
    try:
        return hashlib.sha256(_BOOT.read_bytes()).hexdigest()[:12]
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the machines of a run meet, and which of them this is."""

    head: str
    port: int
    machine: int
    key: str  # the hash of the spec: a connection without it is not of this run
    within_s: float


_AGENT = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
# dialect -> the (rank, world size, local rank) variables it may use, in the order they are tried. The plan names the
# dialect: a run started inside somebody's allocation sees the variables of several launchers, and only one is right.
_DIALECTS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "local": (("PACELINE_RANK", "PACELINE_WORLD_SIZE", "PACELINE_LOCAL_RANK"),),
    "torchrun": (_AGENT,),
    "accelerate": (_AGENT,),
    "mpirun": (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ),
    "srun": (("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),),
}


def supervisor() -> int | None:
    """The process on this machine that must be alive for us to go on, where there is one."""
    pid = os.environ.get("PACELINE_SUPERVISOR", "")
    return int(pid) if pid.isdigit() else None


def identify(variables: Mapping[str, str] | None = None) -> Identity:
    told = os.environ if variables is None else variables
    dialect, host = told.get("PACELINE_DIALECT", ""), socket.gethostname()
    if dialect not in _DIALECTS:
        raise RunFailed(
            "no launcher variables found: a worker is started by `paceline run`, not by hand", kind="launch"
        )
    for names in _DIALECTS[dialect]:
        if all(name in told for name in names):
            try:
                rank, world_size, local_rank = (int(told[name]) for name in names)
            except ValueError:
                raise RunFailed(f"the launcher's {', '.join(names)} are not numbers", kind="launch") from None
            return Identity(rank, world_size, local_rank, dialect, host, has_agent=names is _AGENT)
    if dialect == "accelerate":  # it sets no variables for a single process
        return Identity(0, 1, 0, dialect, host)
    wanted = " or ".join("/".join(names) for names in _DIALECTS[dialect])
    raise RunFailed(f"{dialect} told this process neither rank nor world size ({wanted} are not set)", kind="launch")


def meeting(variables: Mapping[str, str] | None = None) -> Meeting | None:
    """None if the run has one machine: there is no other to connect to."""
    told = os.environ if variables is None else variables
    head, port = told.get("PACELINE_HEAD", ""), told.get("PACELINE_PORT", "")
    machine = told.get("PACELINE_MACHINE") or told.get("SLURM_NODEID", "")
    if not head or not port.isdigit():
        return None
    return Meeting(
        head, int(port), int(machine) if machine.isdigit() else 0, told.get("PACELINE_KEY", ""),
        float(told.get("PACELINE_MEET_WITHIN", "15")),
    )  # fmt: skip


def allocation(variables: Mapping[str, str] | None = None) -> dict[str, int]:
    """What Slurm gave the job, kept by its script: srun overwrites the variables with those of the step. Empty outside Slurm."""
    told = os.environ if variables is None else variables
    names = {"machines": "PACELINE_GIVEN_MACHINES", "processes": "PACELINE_GIVEN_PROCESSES"}
    return {word: int(told[name]) for word, name in names.items() if told.get(name, "").isdigit()}


def use_interface(name: str) -> None:
    """gloo listens where the machine's own name points to, which on many machines is loopback; a user's own choice stays."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def keep_compiled_in(folder: Path) -> None:
    """torch's compiler asks the environment where to keep what it made."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)


_ONEDNN = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # the second is its older name


def onednn_limit() -> str | None:
    """The newest instructions that oneDNN, torch's library of products on a CPU, may use; None: all there are."""
    return next((os.environ[name] for name in _ONEDNN if os.environ.get(name)), None)


def limit_onednn(isa: str) -> None:
    """oneDNN reads it with its first product."""
    os.environ[_ONEDNN[0]] = isa


def announce(identity: Identity, *, local_world_size: int, on_cpu: bool) -> None:
    """accelerate asks the environment who it is, and nobody else: it gets the truth in the words it knows."""
    os.environ.update(
        RANK=str(identity.rank), WORLD_SIZE=str(identity.world_size), LOCAL_RANK=str(identity.local_rank),
        LOCAL_WORLD_SIZE=str(local_world_size),
    )  # fmt: skip
    # accelerate wants it but never uses it: the process group exists already
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    if on_cpu:
        os.environ["ACCELERATE_USE_CPU"] = "true"


def variables() -> dict[str, str]:
    """All there are now."""
    return dict(os.environ)


def become(variables: Mapping[str, str]) -> None:
    """In a forked process: replace the environment by these variables, as a started process would have them."""
    os.environ.clear()
    os.environ.update(variables)


@contextlib.contextmanager
def overheard(by: Callable[[str], bool]) -> Generator[set[str]]:
    """Inside, the names of the variables that are asked for. `by`: whether to count those that the code in a file asks for."""
    kind: Any = type(os.environ)
    get, names = kind.__getitem__, set[str]()

    def asked(environ: Any, name: str | bytes) -> Any:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith("<frozen"):  # os.environ.get, os.getenv
            frame = frame.f_back
        if frame is not None and by(frame.f_code.co_filename):
            names.add(os.fsdecode(name))
        return get(environ, name)

    kind.__getitem__ = asked
    try:
        yield names
    finally:
        kind.__getitem__ = get


def threads_asked(*names: str) -> int | None:
    """The first of these variables that holds a number of threads; of OpenMP's "4,2" it is the outer one."""
    words = (os.environ.get(name, "").partition(",")[0].strip() for name in names)
    return next((int(word) for word in words if word.isdigit() and int(word) > 0), None)
