"""FSDP's two collectives, sent as torch sends them and counted; on a CPU, where they block the computation, also timed.

On a GPU they overlap with the computation in streams of their own. That part is not measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.world.collectives import together
from paceline.worker.world.join import World

# torch 2.13 has the first names, and warns of the second; before, there were only the second.
_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class _Message:
    """What both have in common. FSDP calls `allocate` for the memory that a message needs."""

    def __init__(self, world: World, watch: Stopwatch) -> None:
        self._world, self._watch = world, watch

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def _in_time(self) -> AbstractContextManager[None]:
        return self._watch.aside() if self._world.device.type == "cpu" else nullcontext()


class Fetch(_Message):
    """All-gather: the whole parameters of a unit from the parts of all ranks."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, async_op: bool = False
    ) -> Any:
        with self._in_time(), together():
            work = _gather(output_tensor, input_tensor, group=group, async_op=async_op)
        self._world.count("all_gather", input_tensor.nbytes)
        return work


class Return(_Message):
    """Reduce-scatter: the gradients of a unit, summed over ranks; each rank gets its part."""

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> Any:
        with self._in_time(), together():
            work = _scatter(output_tensor, input_tensor, group=group, op=op, async_op=async_op)
        self._world.count("reduce_scatter", input_tensor.nbytes)
        return work
