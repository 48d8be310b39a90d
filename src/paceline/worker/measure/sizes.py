"""How many bytes tensors hold, and how many this process has. `memory.py` tells what they are used for."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    return sum(held(tensor) for tensor in tensors)


def held(tensor: torch.Tensor) -> int:
    """The bytes of a tensor's elements: of a sparse tensor the values and their indices, of a sharded one this rank's shard."""
    if is_cut(tensor):
        return held(tensor.to_local())  # pyright: ignore[reportAttributeAccessIssue]
    if tensor.layout == torch.sparse_coo:
        return held(tensor._values()) + held(tensor._indices())
    return tensor.numel() * tensor.element_size()


def has_address(value: Any) -> bool:
    """Whether it is a plain dense tensor: other kinds may raise an error in `data_ptr`."""
    return type(value) is torch.Tensor and value.layout == torch.strided


def is_cut(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor, of which this rank holds a shard."""
    return hasattr(tensor, "to_local")


def optimizer_state(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def resident() -> tuple[int, int | None]:
    """(peak, current) resident bytes of this process. Linux's `ru_maxrss` is not used: a child inherits its parent's peak."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024), None
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    sizes = {words[0]: int(words[1]) * 1024 for words in lines if words[:1] in (["VmHWM:"], ["VmRSS:"])}
    return sizes["VmHWM:"], sizes["VmRSS:"]


def proportional() -> int | None:
    """This process's memory now (PSS): a page that n processes share counts as 1/n, so the sum over ranks counts every page once.

    None where the system does not report it.
    """
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)
