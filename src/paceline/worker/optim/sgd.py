"""SGD with momentum, plain or Nesterov's."""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.sgd import sgd

from paceline.spec.run import Spec
from paceline.worker.optim.rule import Captured, Formula, Group, Rate, Tensors, UpdateRule, kept


def _build(groups: list[Group], spec: Spec, common: dict[str, Any]) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, momentum=spec.momentum, nesterov=spec.nesterov, **common)


def _formula(group: Group) -> Formula:
    momentum, nesterov, decay = group["momentum"], group["nesterov"], group["weight_decay"]

    def update(weights: Tensors, gradients: Tensors, state: dict[str, Tensors], rate: Rate) -> None:
        if decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=decay))
        if momentum:
            buffers = state["momentum_buffer"]
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, gradients)
            gradients = list(torch._foreach_add(gradients, buffers, alpha=momentum)) if nesterov else buffers
        torch._foreach_sub_(weights, torch._foreach_mul(gradients, rate["lr"]))

    return update


def _captured(group: Group, weights: Tensors, states: Sequence[dict[str, Any]], rate: Rate) -> Captured:
    momentum, nesterov = group["momentum"], group["nesterov"]
    buffers: list[Any] = kept(states, "momentum_buffer") if momentum else [None] * len(weights)

    def update(gradients: Tensors) -> None:
        sgd(
            weights, gradients, buffers, momentum=momentum, nesterov=nesterov, dampening=0, maximize=False,
            foreach=bool(group.get("foreach")), fused=bool(group.get("fused")), lr=rate["lr"],  # pyright: ignore[reportArgumentType]
            weight_decay=group["weight_decay"],
        )  # fmt: skip

    return update


SGD = UpdateRule(
    torch.optim.SGD, _build, _formula, _captured,
    plain_options=(("dampening", 0), ("maximize", False), ("differentiable", False)),
)  # fmt: skip
