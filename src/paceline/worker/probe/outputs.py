"""What a loss does with the outputs of a model, seen at the outputs themselves: where passes take long, no gradient goes through the model.

Where samples stand side by side in the model, gradients of its parameters recombine as those at its outputs do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paceline.worker.probe.recombine import nodes_behind
from paceline.worker.probe.subject import Places
from paceline.worker.tasks import tree


@dataclass(frozen=True, slots=True)
class CutOutputs:
    """`outputs`: the same, with tensors that no gradient passes. `leaves`: those of them that get one; `origins`: what these were."""

    outputs: Any
    leaves: Sequence[torch.Tensor]
    origins: Sequence[torch.Tensor]

    def behind(self, found: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The leaves that a gradient would reach through those of ours that were found."""
        ids = {id(leaf) for leaf in found}
        pairs = zip(self.leaves, self.origins, strict=True)
        return list(reached([origin for leaf, origin in pairs if id(leaf) in ids]))

    def gradient(self, value: torch.Tensor, places: Places, num: int) -> torch.Tensor:
        """Of `num` samples: zeros for those that are not among `places`."""
        found = torch.autograd.grad(value, list(self.leaves), retain_graph=True, allow_unused=True)
        pieces: list[torch.Tensor] = []
        for gradient, leaf in zip(found, self.leaves, strict=True):
            each = len(leaf) // len(places)
            whole = leaf.new_zeros((num * each, *leaf.shape[1:]), dtype=torch.float64)
            if gradient is not None:
                whole[places[0] * each : (places[-1] + 1) * each] = gradient.detach()
            pieces.append(whole.reshape(-1))
        return torch.cat(pieces)


def cut(outputs: Any, num: int) -> CutOutputs | None:
    """None where a tensor has no rows for each of the `num` samples: a loss that was computed inside the model, say."""
    leaves, origins = list[torch.Tensor](), list[torch.Tensor]()
    for leaf in tree.leaves_of(outputs):
        if isinstance(leaf, torch.Tensor) and (not leaf.dim() or not len(leaf) or len(leaf) % num):
            return None

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.requires_grad:
            return tensor
        origins.append(tensor)
        leaves.append(tensor.detach().requires_grad_())
        return leaves[-1]

    changed = tree.mapped(apart, outputs, opens=False)
    passes = any(isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None for leaf in tree.leaves_of(changed))
    return None if passes or not leaves else CutOutputs(changed, leaves, origins)


def has_number(outputs: Any) -> bool:
    """A tensor without dimensions among them, which no rank could gather: a loss that the model has computed itself, say."""
    return any(isinstance(leaf, torch.Tensor) and not leaf.dim() for leaf in tree.leaves_of(outputs))


def reached(values: Sequence[Any]) -> Iterator[torch.Tensor]:
    """The leaves that get a gradient from these tensors."""
    for node in nodes_behind(values):
        if isinstance(variable := getattr(node, "variable", None), torch.Tensor):
            yield variable
