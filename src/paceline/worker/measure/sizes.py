"""How many bytes tensors hold, and how many this process has. Only counted here: `memory.py` says what they were used for."""

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
    """The bytes of a tensor's numbers. A sparse tensor: its values and their indices. One that is cut over ranks: this rank's part."""
    if is_cut(tensor):
        return held(tensor.to_local())  # pyright: ignore[reportAttributeAccessIssue]
    if tensor.layout == torch.sparse_coo:
        return held(tensor._values()) + held(tensor._indices())
    return tensor.numel() * tensor.element_size()


def has_address(value: Any) -> bool:
    """Whether it is a tensor that has an address; tensors of other kinds may refuse to say."""
    return type(value) is torch.Tensor and value.layout == torch.strided


def is_cut(tensor: torch.Tensor) -> bool:
    """Whether this rank holds a part of it (a DTensor)."""
    return hasattr(tensor, "to_local")


def optimizer_state(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def resident() -> tuple[int, int | None]:
    """The process's peak and what it has now. Not `ru_maxrss` on Linux: a child's begins with its parent's peak."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024), None
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    sizes = {words[0]: int(words[1]) * 1024 for words in lines if words[:1] in (["VmHWM:"], ["VmRSS:"])}
    return sizes["VmHWM:"], sizes["VmRSS:"]


def proportional() -> int | None:
    """The process's memory now, where a page that n processes share counts as 1/n: the sum over ranks counts every page once.

    None where the system does not count it.
    """
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), None)
