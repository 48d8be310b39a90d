"""Data parallelism by replication: one model on every rank, gradients summed in one message a step and divided by the true count.

Our own instead of torch's DDP because of two truths DDP cannot hold: a rank without a sample in a short batch takes part
with zeros, and the divisor is the number of samples (or tokens) that were really seen, so N ranks compute the gradient of one.
"""

from __future__ import annotations

import torch

from paceline.worker.world.collectives import spread, sum_
from paceline.worker.world.join import World


def same_start(model: torch.nn.Module, world: World) -> None:
    """Rank 0's weights and buffers everywhere: a model that seeds itself oddly must not start as N models."""
    for tensor in model.state_dict().values():
        if world.size > 1:
            tensor.copy_(spread(tensor.detach().clone().contiguous(), world))


class Replicated:
    """Makes the mean's gradients out of the sums': over all ranks with one message, alone without."""

    def __init__(self, model: torch.nn.Module, world: World) -> None:
        self.world = world
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def reduce(self, count: float) -> None:
        """Gradients of the rank's loss *sum* become those of the mean over all ranks; `count` is this rank's share of the divisor.

        A parameter no rank used keeps no gradient, as on one process: weight decay must not touch it. So each
        parameter's "was used" flag travels in the same message as the gradients and the count.
        """
        used = [parameter.grad is not None for parameter in self._parameters]
        flags = torch.tensor([float(flag) for flag in used] + [count], dtype=self._parameters[0].dtype)
        pieces = [
            (parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)).reshape(-1)
            for parameter in self._parameters
        ]
        message = sum_(torch.cat([*pieces, flags.to(pieces[0].device)]), self.world)
        tail = message[-len(flags) :].tolist()
        message.div_(tail[-1])
        start = 0
        for parameter, flag in zip(self._parameters, tail, strict=False):
            stop = start + parameter.numel()
            parameter.grad = message[start:stop].view_as(parameter) if flag else None
            start = stop

    def divide(self, count: float) -> None:
        """The same in a world of one, where the samples came in several pieces."""
        for parameter in self._parameters:
            if parameter.grad is not None:
                parameter.grad.div_(count)
