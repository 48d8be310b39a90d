"""A loss that couples the samples of a batch (contrastive, a weighted mean, in-batch negatives) on several ranks: every rank computes it
from the outputs of all. It must not know why a loss couples them.

Each rank then has the whole loss, and a part of its gradient: what goes through its own outputs. What a loss takes from parameters
directly (a temperature, a penalty) is in every rank's gradient, so it must count once and not once a rank. Therefore each rank's loss is
divided by the number of ranks, and what flows back into outputs is multiplied by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any
from zlib import crc32

import torch
from torch.autograd import Function

from paceline.base.errors import RunFailed
from paceline.spec.topology import share
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.tasks.forms import Loss, added, loss_of
from paceline.worker.tasks.returned import loss_terms
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.tree import leaves_of, mapped
from paceline.worker.world.collectives import agree, all_gather
from paceline.worker.world.join import World

ONE_LENGTH = (
    "let collate pad all samples to one length instead of the longest of a batch, return paceline.ratio(sum, count) if the loss is a mean "
    "over tokens, or use on=1x1"
)


def gather_rows(own: torch.Tensor, sizes: Sequence[int], world: World) -> torch.Tensor:
    """The rows of all ranks one below the other; rank r has `sizes[r]`. The message has room for the most."""
    room = own.new_zeros((max(sizes), *own.shape[1:]))
    room[: len(own)] = own
    as_bytes = room.reshape(-1).view(torch.uint8)  # gloo does not know every dtype
    rows = all_gather(as_bytes, world)
    world.count("all_gather", as_bytes.numel())
    return torch.cat([row.view(own.dtype).view(room.shape)[:size] for row, size in zip(rows, sizes, strict=True)])


class _Gathered(Function):
    """`gather_rows` with a gradient: this rank's rows of it, times the number of ranks."""

    @staticmethod
    def forward(ctx: Any, own: torch.Tensor, sizes: Sequence[int], together: Together) -> torch.Tensor:
        start = sum(sizes[: together.world.rank])
        ctx.rows, ctx.times = slice(start, start + len(own)), together.world.size
        return together.rows(own, sizes)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return gradients[0][ctx.rows] * ctx.times, None, None


class Together:
    """Every rank calls `loss` in every step, also one that has no sample."""

    def __init__(self, world: World, watch: Stopwatch | None) -> None:
        self.world, self.watch = world, watch

    def loss(self, task: Task, outputs: Any, batch: Any, num: int, num_global: int) -> Loss:
        sizes = self.sizes(num_global)
        self._check_shapes(outputs, batch)
        every_output = self._tree(outputs, num, sizes, "an output of the model")
        every_batch = self._tree(batch, num, sizes, "the batch")
        terms = loss_terms(task.loss(every_output, every_batch), task.verdict, name=task.name)
        whole = loss_of(terms, num=num_global, num_global=num_global)
        part = num / num_global  # of every figure: the ranks' parts are added up
        figures = {name: (total * part, count * part) for name, (total, count) in whole.figures.items()}
        number = added(term.number for term in terms.values())
        return Loss(number * (num_global / self.world.size), float(num), figures)

    def _check_shapes(self, outputs: Any, batch: Any) -> None:
        """A gather of rows of different sizes would wait for ever, or mix them up."""
        shapes = [list(leaf.shape[1:]) for leaf in leaves_of((outputs, batch)) if isinstance(leaf, torch.Tensor)]
        with self.watch.aside() if self.watch is not None else nullcontext():
            low, high = agree(crc32(repr(shapes).encode()), self.world)
        self.world.count("all_reduce", 8)
        if low != high:
            raise RunFailed(
                f"the loss couples the samples of a batch, so ranks gather what it is given; but it has other shapes on other ranks (here, "
                f"of a sample: {', '.join(map(str, shapes[:4]))}): {ONE_LENGTH}",
                kind="task",
            )

    def sizes(self, num_global: int) -> list[int]:
        """Of each rank: how many of the samples of a batch it has."""
        cuts = [share(num_global, rank=rank, world_size=self.world.size) for rank in range(self.world.size)]
        return [high - low for low, high in cuts]

    def rows(self, own: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        if self.watch is None:
            return gather_rows(own, sizes, self.world)
        with self.watch.aside():
            return gather_rows(own, sizes, self.world)

    def _tree(self, value: Any, num: int, sizes: Sequence[int], what: str) -> Any:
        def rows(item: torch.Tensor) -> Any:
            if not item.dim() or (num and len(item) != num):
                raise RunFailed(
                    f"the loss couples the samples of a batch, so ranks gather what it is given; but {what} is a tensor of shape "
                    f"{list(item.shape)} for {num} samples, which is no row a sample: use on=1x1 accumulate=1, or return one row a "
                    "sample",
                    kind="task",
                )
            own = item[:num]
            return _Gathered.apply(own, sizes, self) if own.requires_grad else self.rows(own.detach(), sizes)

        def other(item: Any) -> Any:
            if item is None or isinstance(item, bool | int | float):
                return item
            raise RunFailed(
                f"the loss couples the samples of a batch, so ranks gather what it is given; but {what} holds a {type(item).__name__}, "
                "which cannot be gathered: use on=1x1 accumulate=1, or keep to tensors",
                kind="task",
            )

        return mapped(rows, value, other, opens=False)
