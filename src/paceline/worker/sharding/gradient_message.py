"""The message of `Replicated` as tensors that a graph writes and reads, with the same layout and order.

The first graph of a step writes each gradient to its place in the message. The second one sums the messages of all
ranks while it updates the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from paceline.worker.sharding.replicate import Replicated
from paceline.worker.world.collectives import Exchange


class GradientMessage:
    """Dense gradients, a flag for each parameter that was used, and the count. A step with sparse gradients is never a
    graph."""

    def __init__(self, replicated: Replicated) -> None:
        self._dense = replicated.dense
        self._dtype = torch.float32
        for parameter in self._dense:
            self._dtype = torch.promote_types(self._dtype, parameter.dtype)
        sizes = [*(parameter.numel() for parameter in self._dense), len(self._dense), 1]
        self.exchange = Exchange(sum(sizes), self._dtype, replicated.world)
        self.pieces = self.exchange.own.cut(sizes)  # the last two: who was used, and the count

    def write(self, gradients: Mapping[int, torch.Tensor | None], count: Any, pieces: Sequence[torch.Tensor]) -> None:
        """Called inside a graph. `gradients` maps the id of a parameter to its gradient, or to None where it was not
        used."""
        in_order = [gradients.get(id(parameter)) for parameter in self._dense]
        *places, used, counted = pieces
        for piece, gradient in zip(places, in_order, strict=True):
            piece.copy_(torch.zeros_like(piece) if gradient is None else gradient.reshape(-1).to(self._dtype))
        if any(gradient is None for gradient in in_order):
            used.copy_(torch.cat([used.new_full((1,), float(gradient is not None)) for gradient in in_order]))
        else:
            used.fill_(1.0)  # as one number: torch's compiler makes a kernel's argument of each that is put together
        counted.copy_(torch.as_tensor(count).to(self._dtype).reshape(1))

    def read(self, messages: Sequence[torch.Tensor], parameters: Sequence[torch.nn.Parameter]) -> list[torch.Tensor]:
        """Called inside a graph: the gradients of the mean loss for these parameters. The ranks' messages are added in
        the order of the ranks, for each parameter apart, so that the compiler can fuse the sum into that parameter's
        update."""
        count, start, places = _sum([message[-1] for message in messages]), 0, dict[int, slice]()
        for parameter in self._dense:
            places[id(parameter)] = slice(start, start + parameter.numel())
            start += parameter.numel()
        sums = [_sum([message[places[id(parameter)]] for message in messages]) for parameter in parameters]
        return [
            (total / count).view(parameter.shape).to(parameter.dtype)
            for total, parameter in zip(sums, parameters, strict=True)
        ]


def _sum(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total
