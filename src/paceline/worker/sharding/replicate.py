"""Data parallelism by replication: one model on every rank, gradients summed in one message a step and divided by the true count.

Our own instead of torch's DDP because of two truths DDP cannot hold: a rank without a sample in a short batch takes part
with zeros, and the divisor is the number of samples (or tokens) that were really seen, so N ranks compute the gradient of one.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.worker.sharding.sharding import Plain
from paceline.worker.world.collectives import spread, sum_
from paceline.worker.world.join import World


def same_start(model: torch.nn.Module, world: World) -> None:
    """Rank 0's weights and buffers everywhere: a model that seeds itself oddly must not start as N models."""
    for tensor in model.state_dict().values():
        if world.size > 1:
            tensor.copy_(spread(tensor.detach().clone().contiguous(), world))


class Replicated(Plain):
    """Makes the mean's gradients out of the sums': over all ranks with one message, alone without."""

    def reduce(self, count: Any) -> None:
        """A parameter no rank used keeps no gradient, as on one process: weight decay must not touch it. So each
        parameter's "was used" flag travels in the same message as the gradients and the count.
        """
        if self.world.size == 1:
            for gradient in self.gradients():
                gradient.div_(count)
            return
        used = [parameter.grad is not None for parameter in self._parameters]
        device = self._parameters[0].device
        # Counts do not fit into a half format, and sums in one would lose the small ranks: there the message is in fp32.
        dtype = torch.promote_types(self._parameters[0].dtype, torch.float32)
        flags = torch.tensor([float(flag) for flag in used], dtype=dtype, device=device)
        pieces = [
            (parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)).reshape(-1)
            for parameter in self._parameters
        ]
        seen = torch.as_tensor(count, device=device).to(dtype).reshape(1)
        message = sum_(torch.cat([*pieces, flags, seen]), self.world)
        tail = message[-len(flags) - 1 :].tolist()
        message.div_(tail[-1])
        start = 0
        for parameter, flag in zip(self._parameters, tail, strict=False):
            stop = start + parameter.numel()
            parameter.grad = message[start:stop].view_as(parameter).to(parameter.dtype) if flag else None
            start = stop
