"""Running statistics of N ranks made into those of one model, by the rule the spec names, before any evaluation or hash."""

from __future__ import annotations

import torch

from paceline.worker.world.collectives import all_reduce_, broadcast
from paceline.worker.world.join import World


def reconcile(model: torch.nn.Module, world: World, *, rule: str) -> None:
    """`mean`: the mean of floating statistics over ranks (counters are rank 0's); `rank0`: rank 0's, as torch's DDP has it.

    Each rank saw other samples, so the mean of running variances leaves out the variance between ranks: named in docs/truth.md.
    """
    if world.size == 1:
        return
    for buffer in model.buffers():
        if rule == "mean" and buffer.is_floating_point():
            # a mean in a half format would lose what the ranks differ in
            wide = torch.promote_types(buffer.dtype, torch.float32)
            buffer.copy_(all_reduce_(buffer.detach().to(wide, copy=True), world).div_(world.size))
        else:
            buffer.copy_(broadcast(buffer.detach().clone(), world))
