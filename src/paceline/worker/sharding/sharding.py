"""How the step sees every way of sharding a model over ranks."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from paceline.worker.optim.sparse import gradient_rows
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.world.join import World


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of every batch belongs to this rank: the `index`-th of `num`. Where layers are cut over ranks, every
    rank sees the whole batch: 0 of 1."""

    index: int
    num: int


class InParts(Protocol):
    """A tensor of which each rank has a part, and which is no DTensor."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def pieces(self) -> Iterator[torch.Tensor]:
        """The whole tensor, some rows at a time, on every rank; all ranks must call it together."""
        ...


class Sharding(Protocol):
    """One per run. It changed or wrapped the model when it was built; during training it only communicates."""

    word: str  # what was done, in the words of the setting; read back from here
    module: torch.nn.Module  # what the step calls in training; the plain model serves evaluation
    share: Share
    reduces_over_ranks: bool  # `reduce` is a collective of all ranks
    in_parts: Mapping[str, InParts]  # by their names in the model's state

    def accumulate(self, *, last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of one micro-batch; nothing is sent before the last one's backward."""
        ...

    def reduce(self, count: Any) -> None:
        """Gradients of this rank's loss *sum* become those of the mean over all samples; `count` is its share of the divisor."""
        ...

    def gradients(self) -> list[torch.Tensor]:
        """What this rank holds of them, to be changed in place; after `reduce`."""
        ...

    def norm(self) -> torch.Tensor:
        """Of the whole model's gradient, the same on every rank; after `reduce`."""
        ...

    def synchronize(self, *, at_once: bool = False) -> None:
        """Called after each update: averages the ranks' models where that is due. `at_once`: do it now, due or not."""
        ...

    def state(self) -> dict[str, Any]:
        """What it has counted that the next steps depend on."""
        ...

    def restore(self, values: dict[str, Any]) -> None: ...

    def hidden_s(self) -> float:
        """Seconds of communication that ran while this rank computed."""
        ...

    def read_back(self) -> dict[str, Any]:
        """What it can say of itself for the record, under `exchange`."""
        ...


class Plain:
    """What most ways have in common: gradients are plain tensors, whole on every rank, and nothing happens between steps."""

    word = "none"

    def __init__(self, task_module: TaskModule, world: World) -> None:
        self.world = world
        self.module: torch.nn.Module = task_module
        self.share = Share(world.rank, world.size)
        self.reduces_over_ranks = world.size > 1
        self.in_parts: Mapping[str, InParts] = {}
        self._model = task_module.model
        self._parameters = [parameter for parameter in self._model.parameters() if parameter.requires_grad]

    def accumulate(self, *, last: bool) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def gradients(self) -> list[torch.Tensor]:
        """Of a sparse one its rows."""
        return [rows for parameter in self._parameters if (rows := gradient_rows(parameter)) is not None]

    def norm(self) -> torch.Tensor:
        return torch.nn.utils.get_total_norm(self.gradients())

    def synchronize(self, *, at_once: bool = False) -> None: ...

    def state(self) -> dict[str, Any]:
        return {}

    def restore(self, values: dict[str, Any]) -> None: ...

    def hidden_s(self) -> float:
        return 0.0

    def read_back(self) -> dict[str, Any]:
        return {}


def num_parameters(model: torch.nn.Module, in_parts: Mapping[str, InParts]) -> int:
    """Of the whole model, however it is sharded. A DTensor counts the numbers of all ranks by itself."""
    return sum(
        math.prod(in_parts[name].shape) if name in in_parts else parameter.numel()
        for name, parameter in model.named_parameters()
    )
