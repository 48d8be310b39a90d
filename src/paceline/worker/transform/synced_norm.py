"""`buffers=sync`: BatchNorm that normalises with the whole batch, whichever rank has its samples. So N ranks train the model of one.

torch's own SyncBatchNorm is for GPUs alone. Sums are taken twice, of the values and then of their squared distances from the mean, because
one pass would lose digits where the mean is large.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.autograd import Function
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.base.errors import RunFailed
from paceline.worker.world.collectives import all_reduce_
from paceline.worker.world.join import World

Aside = Callable[[], AbstractContextManager[Any]]


class _Normalised(Function):
    """The normalised values, before weight and bias; with them the mean, the variance and the number of values."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, eps: float, over: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        dims, shape = _dims(x), _shape(x)
        first = over(torch.cat([x.double().sum(dims), x.new_full((1,), x.numel() / x.shape[1], dtype=torch.float64)]))
        num = first[-1]
        mean = first[:-1] / num
        centred = x - mean.to(x.dtype).view(shape)
        variance = over(centred.double().square().sum(dims)) / num
        scale = (variance + eps).rsqrt().to(x.dtype).view(shape)
        normal = centred * scale
        ctx.save_for_backward(normal, scale, num)
        ctx.over = over
        ctx.mark_non_differentiable(mean, variance, num)
        return normal, mean, variance, num

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        normal, scale, num = ctx.saved_tensors
        gradient = gradients[0]
        dims, shape = _dims(normal), _shape(normal)
        both = torch.cat([gradient.double().sum(dims), (gradient * normal).double().sum(dims)])
        sums, products = (ctx.over(both) / num).to(normal.dtype).chunk(2)
        return scale * (gradient - sums.view(shape) - normal * products.view(shape)), None, None


def _dims(x: torch.Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _shape(x: torch.Tensor) -> list[int]:
    return [1, -1, *[1] * (x.dim() - 2)]


class Synced:
    """In place of a module's own forward, on the object: so no name in a state_dict changes."""

    def __init__(self, module: _BatchNorm, world: World, aside: Aside) -> None:
        self._module, self._world, self._aside, self._own = module, world, aside, module.forward

    def _over(self, sums: torch.Tensor) -> torch.Tensor:
        with self._aside():
            return all_reduce_(sums, self._world)

    def __call__(self, input: torch.Tensor) -> torch.Tensor:
        x, module = input, self._module
        if not module.training:
            return self._own(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        normal, mean, variance, num = _Normalised.apply(wide, module.eps, self._over)
        self._remember(mean, variance * num / (num - 1))
        if module.weight is not None:
            shape = _shape(x)
            normal = normal * module.weight.view(shape) + module.bias.view(shape)
        return normal.to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Running statistics as torch has them, the same on every rank."""
        module = self._module
        if module.running_mean is None or module.running_var is None or module.num_batches_tracked is None:
            return
        module.num_batches_tracked.add_(1)
        share = module.momentum if module.momentum is not None else 1.0 / float(module.num_batches_tracked)
        for running, value in ((module.running_mean, mean), (module.running_var, variance)):
            running.mul_(1 - share).add_(value.to(running.dtype), alpha=share)


def synchronize(model: torch.nn.Module, world: World, aside: Aside) -> None:
    """Every BatchNorm of the model; one that has none is refused."""
    found = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not found:
        raise RunFailed("buffers=sync: the model has no BatchNorm to synchronise; leave it out", kind="mismatch")
    for module in found if world.size > 1 else []:
        module.forward = Synced(module, world, aside)


def read_back(model: torch.nn.Module) -> bool:
    """Whether every BatchNorm normalises over all ranks."""
    return all(isinstance(module.forward, Synced) for module in model.modules() if isinstance(module, _BatchNorm))
