"""Adam and AdamW: one formula, with the weight decay added to the gradient or applied apart from it."""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.adam import adam

from paceline.spec.run import Spec
from paceline.worker.optim.rule import Captured, Formula, Group, Rate, Tensors, UpdateRule, kept, step_counters

_PLAIN = (("amsgrad", False), ("maximize", False), ("differentiable", False))


class Corrections:
    """Adam's two scalars of a step, for each parameter: the rate over the first bias correction, and the root of the
    second. Inside a compiled CPU graph the loop over the weights would compute two powers for every sixteen weights, a
    third of the step of a small model. On a GPU they cost nothing inside the graph, and a copy from the host would."""

    def __init__(self, group: Group, states: Callable[[], Sequence[dict[str, Any]]], dtype: torch.dtype) -> None:
        self._group, self._states = group, states
        self.tensors = {name: torch.zeros(len(states()), dtype=dtype) for name in ("size", "root")}
        self._size, self._root = (tensor.numpy() for tensor in self.tensors.values())  # the same memory
        self._steps: list[float] = []

    def read_steps(self) -> None:
        """A parameter that was not used in some step has made fewer steps than the others."""
        steps = [float(state["step"]) for state in self._states()]
        self._steps = steps if len(set(steps)) > 1 else steps[:1]

    def advance(self) -> None:
        """At the rate that the optimizer's group has by now."""
        lr, (first, second) = float(self._group["lr"]), self._group["betas"]
        self._steps = [step + 1 for step in self._steps]
        self._size[:] = [lr / (1 - first**step) for step in self._steps]
        self._root[:] = [math.sqrt(1 - second**step) for step in self._steps]


def _formula(group: Group) -> Formula:
    (beta, other), eps, decay = group["betas"], group["eps"], group["weight_decay"]
    decoupled = group["decoupled_weight_decay"]

    def update(weights: Tensors, gradients: Tensors, state: dict[str, Tensors], rate: Rate) -> None:
        lr, first, second, steps = rate["lr"], state["exp_avg"], state["exp_avg_sq"], state["step"]
        one: Any = rate.get("beta", beta)  # a tensor where the schedule moves it
        torch._foreach_add_(steps, 1)
        if decay and decoupled:
            torch._foreach_mul_(weights, 1 - lr * decay)
        elif decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=decay))
        if isinstance(one, torch.Tensor):
            torch._foreach_mul_(first, one)
            torch._foreach_add_(first, torch._foreach_mul(gradients, 1 - one))
        else:
            torch._foreach_lerp_(first, gradients, 1 - one)
        torch._foreach_mul_(second, other)
        torch._foreach_addcmul_(second, gradients, gradients, 1 - other)
        if "size" in rate:
            sizes, roots = list(rate["size"].unbind()), list(rate["root"].unbind())
        else:
            sizes = [lr / (1 - one**step) for step in steps]
            roots = [(1 - other**step).sqrt() for step in steps]
        below = torch._foreach_sqrt(second)
        torch._foreach_div_(below, roots)
        torch._foreach_add_(below, eps)
        moves = torch._foreach_div(first, below)
        torch._foreach_mul_(moves, sizes)
        torch._foreach_sub_(weights, moves)

    return update


def _captured(group: Group, weights: Tensors, states: Sequence[dict[str, Any]], rate: Rate) -> Captured:
    fused = bool(group.get("fused"))
    first, second = kept(states, "exp_avg"), kept(states, "exp_avg_sq")
    steps = step_counters(states, weights, fused=fused)
    decay, decoupled, eps, (beta, other) = (
        group["weight_decay"], group["decoupled_weight_decay"], group["eps"], group["betas"],
    )  # fmt: skip
    one: Any = rate.get("beta", beta)

    def update(gradients: Tensors) -> None:
        adam(
            weights, gradients, first, second, [], steps, capturable=True, decoupled_weight_decay=decoupled, amsgrad=False,
            beta1=one, beta2=other, eps=eps, maximize=False, foreach=bool(group.get("foreach")), fused=fused, lr=rate["lr"],
            weight_decay=decay,
        )  # fmt: skip

    return update


def _adam(groups: list[Group], spec: Spec, common: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, **common)


def _adamw(groups: list[Group], spec: Spec, common: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, **common)


ADAM = UpdateRule(torch.optim.Adam, _adam, _formula, _captured, Corrections, _PLAIN)
ADAMW = UpdateRule(torch.optim.AdamW, _adamw, _formula, _captured, Corrections, _PLAIN)
