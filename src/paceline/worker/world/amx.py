"""Intel's matrix unit (AMX), which a virtual machine may announce without having it: torch's first bf16 product then ends the process
with SIGILL. Where it is announced, a child process tries it first."""

from __future__ import annotations

import faulthandler
import os
import resource
from pathlib import Path

import torch

from paceline.worker.world.env import limit_onednn, onednn_limit

_CPUS = Path("/proc/cpuinfo")
_FLAG = "amx_tile"
NEXT_BEST = "AVX512_CORE_FP16"  # oneDNN's word for what such a processor has without it
_SIZE = 64  # of the product: enough for oneDNN to take the matrix unit


def avoid_broken_amx() -> str | None:
    """Called before the first product of a process: where AMX is broken, oneDNN is told to do without. The limit that holds now, if
    any; one that the user has set stays."""
    if _announced() and onednn_limit() is None and not _works():
        limit_onednn(NEXT_BEST)
    return onednn_limit()


def _announced() -> bool:
    try:
        lines = _CPUS.read_text().splitlines()
    except OSError:  # no Linux: no way to ask, and nothing was seen there
        return False
    return any(_FLAG in line.split() for line in lines if line.startswith("flags"))


def _works() -> bool:
    child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()  # a crash here is an answer, and no news
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            torch.set_num_threads(1)
            a = torch.ones(_SIZE, _SIZE, dtype=torch.bfloat16)
            torch.nn.functional.linear(a, a)
        finally:
            os._exit(0)  # any error but a signal is for the run itself to meet
    _, status = os.waitpid(child, 0)
    return not os.WIFSIGNALED(status)
