"""How the step sees every way of spreading a model over ranks."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from paceline.worker.world.join import World


@dataclass(frozen=True, slots=True)
class Share:
    """Which part of every batch is this rank's: the `index`-th of `num`. Where layers are cut over ranks, all see all of it: 0 of 1."""

    index: int
    num: int


class Sharding(Protocol):
    """One per run. The model was changed (or wrapped) when it was made; from then on it only exchanges."""

    word: str  # what was done, in the words of the setting; read back from here
    share: Share
    # Ranks meet inside the model: each must call it equally often, in training and in evaluation, whether or not it has a sample.
    lockstep: bool

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
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def micro(self, *, last: bool) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def gradients(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]

    def norm(self) -> torch.Tensor:
        return torch.nn.utils.get_total_norm(self.gradients())

    def scale(self, by: torch.Tensor) -> None:
        for gradient in self.gradients():
            gradient.mul_(by)

    def after_update(self) -> None: ...

    def one_model(self) -> None: ...

    def hidden_s(self) -> float:
        return 0.0

    def read_back(self) -> dict[str, Any]:
        return {}
