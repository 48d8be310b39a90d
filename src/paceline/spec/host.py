"""What the parent can know of this machine without torch: cores, memory, GPUs, whether torch is installed."""

from __future__ import annotations

import importlib.metadata
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Host:
    cores: int
    memory_bytes: int
    gpus: int
    torch: str | None

    @property
    def usable_gpus(self) -> int:
        """A GPU that a CPU-only build of torch cannot use does not count."""
        return 0 if self.torch is None or "+cpu" in self.torch else self.gpus


def here() -> Host:
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return Host(
        cores=cores,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=sum(path.name[6:].isdigit() for path in Path("/dev").glob("nvidia*")),
        torch=torch,
    )
