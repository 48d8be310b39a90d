"""How the step sees every way of spreading a model over ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from paceline.worker.transform.sparse import numbers
from paceline.worker.world.join import World


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of every batch is this rank's: the `index`-th of `num`. Where layers are cut over ranks, all see all of it: 0 of 1."""

    index: int
    num: int


class InParts(Protocol):
    """A tensor of which each rank has a part, in a way that torch does not know of."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def pieces(self) -> Iterator[torch.Tensor]:
        """The whole of it, some rows at a time, on every rank; all ranks together."""
        ...


class Sharding(Protocol):
    """One per run. The model was changed (or wrapped) when it was made; from then on it only exchanges."""

    word: str  # what was done, in the words of the setting; read back from here
    share: Share
    # Ranks meet inside the model: each must call it equally often, in training and in evaluation, whether or not it has a sample.
    lockstep: bool
    meets: bool  # `reduce` is a conversation of all ranks
    in_parts: Mapping[str, InParts]  # by their names in the model's state

    def micro(self, *, last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of one micro-batch; nothing is sent before the last one's backward."""
        ...

    def reduce(self, count: Any) -> None:
        """Gradients of this rank's loss *sum* become those of the mean over all samples; `count` is its share of the divisor."""
        ...

    def norm(self) -> torch.Tensor:
        """Of the whole model's gradient, the same on every rank; after `reduce`."""
        ...

    def scale(self, by: torch.Tensor) -> None:
        """Every gradient times a number; after `reduce`."""
        ...

    def after_update(self) -> None:
        """When the optimizer has stepped: local SGD may average here."""
        ...

    def one_model(self) -> None:
        """Before an evaluation or a hash: ranks that drifted apart become one model."""
        ...

    def hidden_s(self) -> float:
        """Seconds of communication that ran while this rank computed."""
        ...

    def num_parameters(self) -> int:
        """Of the whole model, however it is spread."""
        ...

    def read_back(self) -> dict[str, Any]:
        """What it can say of itself for the record, under `exchange`."""
        ...


class Plain:
    """What most ways have in common: gradients are plain tensors, whole on every rank, and nothing happens between steps."""

    word = "none"
    lockstep = False

    def __init__(self, model: torch.nn.Module, world: World) -> None:
        self.world = world
        self.share = Share(world.rank, world.size)
        self.meets = world.size > 1
        self.in_parts: Mapping[str, InParts] = {}
        self._model = model
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def micro(self, *, last: bool) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def gradients(self) -> list[torch.Tensor]:
        """To be changed in place; of a sparse one its numbers."""
        return [found for parameter in self._parameters if (found := numbers(parameter)) is not None]

    def norm(self) -> torch.Tensor:
        return torch.nn.utils.get_total_norm(self.gradients())

    def scale(self, by: torch.Tensor) -> None:
        for gradient in self.gradients():
            gradient.mul_(by)

    def after_update(self) -> None: ...

    def one_model(self) -> None: ...

    def hidden_s(self) -> float:
        return 0.0

    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self._model.parameters())

    def read_back(self) -> dict[str, Any]:
        return {}
