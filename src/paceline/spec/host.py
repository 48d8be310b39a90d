"""What the parent can know of this machine without torch and without starting anything: cores, memory, GPUs, programs, packages."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from paceline.spec.axes.launchers import LAUNCHERS

COMPILERS = ("g++", "clang++", "c++")  # of our own kernels, in the order they are tried
PROGRAMS = frozenset({*COMPILERS, *(name for row in LAUNCHERS.values() for name in row.programs)})
PACKAGES = frozenset({"mpi4py", "torchao", *(name for row in LAUNCHERS.values() for name in row.packages)})


@dataclass(frozen=True, slots=True)
class Host:
    cores: int
    memory_bytes: int
    gpus: int
    torch: str | None
    programs: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()
    mpi: str | None = None  # openmpi | mpich
    platform: str = "linux"

    @property
    def usable_gpus(self) -> int:
        """A GPU that a CPU-only build of torch cannot use does not count."""
        return 0 if self.torch is None or "+cpu" in self.torch else self.gpus


def program(name: str) -> str | None:
    """The path of a program. The folder of this Python is searched first, whether or not its environment is
    activated."""
    own_folder = str(Path(sys.executable).parent)
    return shutil.which(name, path=own_folder) or shutil.which(name)


def installed(package: str) -> str | None:
    """The version of a package, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def mpi_flavour() -> str | None:
    """Open MPI and MPICH each come with a program that tells about them, in the folder of the mpirun that would be
    used."""
    mpirun = program("mpirun")
    for name, teller in (("openmpi", "ompi_info"), ("mpich", "mpichversion")):
        if mpirun and shutil.which(teller, path=str(Path(mpirun).parent)):
            return name
    return None


def here() -> Host:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return Host(
        cores=cores,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=sum(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*")),
        torch=installed("torch"),
        programs=frozenset(name for name in PROGRAMS if program(name)),
        packages=frozenset(name for name in PACKAGES if installed(name)),
        mpi=mpi_flavour(),
        platform=sys.platform,
    )
