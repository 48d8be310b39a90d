"""The message of `Replicated` as a graph reads and writes it: the same layout in the same order, made of tensors alone.

So a rank that makes an ordinary step and a rank whose step is a graph understand each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from paceline.worker.sharding.replicate import Replicated
from paceline.worker.world.collectives import sum_


class Wire:
    """Dense gradients, who was used, the count. There are no sparse ones: a step with them is no graph."""

    def __init__(self, replicated: Replicated) -> None:
        self._world, self._dense = replicated.world, replicated.dense
        self._dtype = torch.float32
        for parameter in self._dense:
            self._dtype = torch.promote_types(self._dtype, parameter.dtype)

    def empty(self) -> torch.Tensor:
        size = sum(parameter.numel() for parameter in self._dense) + len(self._dense) + 1
        return torch.zeros(size, dtype=self._dtype, device=self._world.device)

    def write(self, gradients: Mapping[int, torch.Tensor | None], count: Any, message: torch.Tensor) -> None:
        """Inside a graph; `gradients` by the id of their parameter."""
        found = [gradients.get(id(parameter)) for parameter in self._dense]
        pieces = [
            message.new_zeros(parameter.numel()) if gradient is None else gradient.reshape(-1).to(self._dtype)
            for parameter, gradient in zip(self._dense, found, strict=True)
        ]
        flags = [message.new_full((1,), float(gradient is not None)) for gradient in found]
        message.copy_(torch.cat([*pieces, *flags, torch.as_tensor(count).to(self._dtype).reshape(1)]))

    def read(self, message: torch.Tensor, parameters: Sequence[torch.nn.Parameter]) -> list[torch.Tensor]:
        """Inside a graph: the mean's gradients of these parameters."""
        means, start, places = message / message[-1], 0, dict[int, tuple[int, int]]()
        for parameter in self._dense:
            places[id(parameter)] = start, start + parameter.numel()
            start += parameter.numel()
        return [
            means[slice(*places[id(parameter)])].view(parameter.shape).to(parameter.dtype) for parameter in parameters
        ]

    def sum(self, message: torch.Tensor) -> None:
        """Outside of any graph."""
        sum_(message, self._world)
