"""What each launcher can do, and where its code is. Data only: `launch/` renders the plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_SLURM = ("sbatch", "srun")


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherTraits:
    """`inner` is what starts the ranks on the machines, and the name of its logs: of `slurm+torchrun` it is torchrun."""

    name: str
    about: str
    target: str  # module:class in launch/, imported on demand
    inner: str
    has_parent: bool = True  # a process of its own stands between us and the ranks
    forks_warm: bool = False  # its ranks may be forked from a warm process that has imported torch
    in_queue: bool = False  # Slurm starts it, on machines that are not this one
    by_hand: bool = False  # on several machines the user starts it on each
    has_rendezvous: bool = False  # one agent a machine; the agents find each other
    mpi_world: bool = False  # MPI knows the ranks, so backend=mpi can join them
    asks_which_mpi: bool = False  # it must be told which MPI it starts
    binds_cores: bool = False  # it puts ranks on cores by rules of its own
    programs: tuple[str, ...] = ()  # that must be installed
    packages: tuple[str, ...] = ()

    @property
    def one_machine(self) -> bool:
        """It starts processes on this machine only."""
        return not (self.in_queue or self.by_hand)


LAUNCHERS: Mapping[str, LauncherTraits] = MappingProxyType(
    {
        row.name: row
        for row in (
            LauncherTraits(
                name="local",
                about="our own processes on this machine, one log per rank, nothing between them and us",
                target="paceline.launch.local:Local",
                inner="local",
                has_parent=False,
                forks_warm=True,
            ),
            LauncherTraits(
                name="torchrun",
                about="torch's own launcher (python -m torch.distributed.run); on several machines you start it on each "
                "(head=, machine=)",
                target="paceline.launch.torchrun:Torchrun",
                inner="torchrun",
                by_hand=True,
                has_rendezvous=True,
            ),
            LauncherTraits(
                name="spawn",
                about="one mother process that starts the ranks with torch.multiprocessing.spawn",
                target="paceline.launch.spawn:Spawn",
                inner="spawn",
            ),
            LauncherTraits(
                name="accelerate",
                about="accelerate launch; it only starts the processes (wrap=accelerate trains through it)",
                target="paceline.launch.accelerate:Accelerate",
                inner="accelerate",
                by_hand=True,
                has_rendezvous=True,
                packages=("accelerate",),
            ),
            LauncherTraits(
                name="mpirun",
                about="Open MPI 4 or 5, or MPICH, on this machine; needed by backend=mpi",
                target="paceline.launch.mpirun:Mpirun",
                inner="mpirun",
                mpi_world=True,
                binds_cores=True,
                programs=("mpirun",),
            ),
            LauncherTraits(
                name="slurm+torchrun",
                about="an sbatch job in which srun starts torchrun on every machine",
                target="paceline.launch.slurm.launchers:SlurmTorchrun",
                inner="torchrun",
                in_queue=True,
                has_rendezvous=True,
                binds_cores=True,
                programs=_SLURM,
            ),
            LauncherTraits(
                name="slurm+accelerate",
                about="an sbatch job in which srun starts accelerate launch on every machine",
                target="paceline.launch.slurm.launchers:SlurmAccelerate",
                inner="accelerate",
                in_queue=True,
                has_rendezvous=True,
                binds_cores=True,
                programs=_SLURM,
                packages=("accelerate",),
            ),
            LauncherTraits(
                name="slurm+mpirun",
                about="an sbatch job in which mpirun starts the ranks on all machines",
                target="paceline.launch.slurm.launchers:SlurmMpirun",
                inner="mpirun",
                in_queue=True,
                mpi_world=True,
                binds_cores=True,
                programs=(*_SLURM, "mpirun"),
            ),
            LauncherTraits(
                name="slurm+srun",
                about="an sbatch job in which srun starts every rank itself",
                target="paceline.launch.slurm.launchers:SlurmSrun",
                inner="srun",
                in_queue=True,
                mpi_world=True,
                asks_which_mpi=True,
                binds_cores=True,
                programs=_SLURM,
            ),
        )
    }
)
