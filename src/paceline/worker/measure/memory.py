"""What a rank's memory was used for, from the process and the tensors themselves. It reads; it never allocates."""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _optimizer_state(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _peak_resident() -> int:
    """The process's own peak. `ru_maxrss` would be the parent's too: Linux carries it over fork and exec."""
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def memory(model: torch.nn.Module, optimizer: torch.optim.Optimizer, device: torch.device) -> dict[str, Any]:
    """`peak_bytes` is the device allocator's own figure; a CPU has none, so it is null there and `rss_bytes` is the process."""
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    rss = _peak_resident()
    return {
        "peak_bytes": peak,
        "rss_bytes": rss,
        "parts": {
            "parameters": _bytes(model.parameters()),
            "gradients": _bytes(p.grad for p in model.parameters() if p.grad is not None),
            "optimizer": _bytes(_optimizer_state(optimizer)),
            "activations": None,
            "other": None,
        },
    }
