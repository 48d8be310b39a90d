"""RMSprop, with momentum where that is asked for."""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.optim.rmsprop import rmsprop

from paceline.spec.run import Spec
from paceline.worker.optim.rule import Captured, Formula, Group, Rate, Tensors, UpdateRule, kept, step_counters


def _build(groups: list[Group], spec: Spec, common: dict[str, Any]) -> torch.optim.Optimizer:
    del common["fused"]  # torch has none, and a rule refuses it
    return torch.optim.RMSprop(groups, momentum=spec.momentum, **common)


def _formula(group: Group) -> Formula:
    alpha, eps, momentum, decay = group["alpha"], group["eps"], group["momentum"], group["weight_decay"]

    def update(weights: Tensors, gradients: Tensors, state: dict[str, Tensors], rate: Rate) -> None:
        squares = state["square_avg"]
        torch._foreach_add_(state["step"], 1)
        if decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=decay))
        torch._foreach_mul_(squares, alpha)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - alpha)
        below = torch._foreach_sqrt(squares)
        torch._foreach_add_(below, eps)
        moves = torch._foreach_div(gradients, below)
        if momentum:
            torch._foreach_mul_(state["momentum_buffer"], momentum)
            torch._foreach_add_(state["momentum_buffer"], moves)
            moves = state["momentum_buffer"]
        torch._foreach_sub_(weights, torch._foreach_mul(moves, rate["lr"]))

    return update


def _captured(group: Group, weights: Tensors, states: Sequence[dict[str, Any]], rate: Rate) -> Captured:
    squares, steps = kept(states, "square_avg"), step_counters(states, weights)
    momentum, alpha, eps = group["momentum"], group["alpha"], group["eps"]
    moved = kept(states, "momentum_buffer") if momentum else []

    def update(gradients: Tensors) -> None:
        rmsprop(
            weights, gradients, squares, [], moved, steps, capturable=True, alpha=alpha, eps=eps, momentum=momentum,
            centered=False, foreach=bool(group.get("foreach")), lr=rate["lr"],  # pyright: ignore[reportArgumentType]
            weight_decay=group["weight_decay"],
        )  # fmt: skip

    return update


RMSPROP = UpdateRule(
    torch.optim.RMSprop, _build, _formula, _captured,
    plain_options=(("centered", False), ("maximize", False), ("differentiable", False)),
)  # fmt: skip
