"""An optimizer's update as a part of a graph: torch's own functions on the optimizer's own state, with the rate in a tensor.

A number would become a constant of the graph, so a schedule would not move it. The optimizer itself is left as it is and takes
the steps that run eagerly: both work on the same state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim.adam import adam
from torch.optim.rmsprop import rmsprop
from torch.optim.sgd import sgd

from paceline.base.errors import RunFailed
from paceline.worker.transform.schedule import Rate

Gradients = Sequence[torch.Tensor]


class RateInTensors:
    """The rate as a graph reads it: `lr`, and Adam's first beta where the schedule moves that too."""

    def __init__(self, optimizer: torch.optim.Optimizer, like: torch.Tensor, *, moves_beta: bool) -> None:
        group = optimizer.param_groups[0]
        # torch's fused SGD reads its rate as float32, whatever the weights are
        kind = torch.float64 if like.dtype == torch.float64 and not group.get("fused") else torch.float32
        self.lr = torch.full((), float(group["lr"]), dtype=kind, device=like.device)
        self.beta = torch.full((), group["betas"][0], dtype=kind, device=like.device) if moves_beta else None
        self._last: Rate | None = None

    def follow(self, rate: Rate | None) -> None:
        """Filled where it changed; the device is not waited for."""
        if rate is None or rate == self._last:
            return
        self.lr.fill_(rate.lr)
        if self.beta is not None and rate.beta is not None:
            self.beta.fill_(rate.beta)
        self._last = rate


def trained(optimizer: torch.optim.Optimizer, *, asked: str) -> list[torch.nn.Parameter]:
    """The parameters that got a gradient in the step just made: a graph updates these, as the optimizer would."""
    found: list[torch.nn.Parameter] = [
        p for group in optimizer.param_groups for p in group["params"] if p.grad is not None
    ]
    if any(p.grad is not None and p.grad.layout != torch.strided for p in found):
        raise RunFailed(
            f"{asked}: a parameter has sparse gradients, whose size changes from step to step, which a graph cannot hold: use "
            "graph_of=model, or a table with sparse=False",
            kind="mismatch",
        )
    if not found or len(optimizer.param_groups) != 1:
        raise RunFailed(
            f"{asked}: no parameter had a gradient in the first step, or parameters of several kinds", kind="mismatch"
        )
    return found


def updater(
    optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter], rate: RateInTensors
) -> Callable[[list[torch.Tensor]], None]:
    """gradients -> the parameters and the optimizer's state, changed in place, without a look at any value.

    The state must be there: the first step is made by the optimizer itself.
    """
    group, states = optimizer.param_groups[0], [optimizer.state[p] for p in parameters]
    way: dict[str, Any] = {"foreach": bool(group.get("foreach"))}
    if not isinstance(optimizer, torch.optim.RMSprop):  # torch has no fused one
        way["fused"] = bool(group.get("fused"))
    common: dict[str, Any] = {"lr": rate.lr, "weight_decay": group["weight_decay"]}
    weights: list[torch.Tensor] = list(parameters)
    if isinstance(optimizer, torch.optim.Adam):  # AdamW is one of them
        first, second = _kept(states, "exp_avg"), _kept(states, "exp_avg_sq")
        steps = _steps(states, weights, fused=way["fused"])
        decoupled, eps, (beta, other) = group["decoupled_weight_decay"], group["eps"], group["betas"]
        beta = beta if rate.beta is None else rate.beta

        def adams(gradients: list[torch.Tensor]) -> None:
            adam(
                weights, gradients, first, second, [], steps, capturable=True, decoupled_weight_decay=decoupled, amsgrad=False,
                beta1=beta, beta2=other, eps=eps, maximize=False, **way, **common,
            )  # fmt: skip

        return adams
    if isinstance(optimizer, torch.optim.RMSprop):
        squares, steps = _kept(states, "square_avg"), _steps(states, weights)
        momentum, alpha, eps = group["momentum"], group["alpha"], group["eps"]
        moved = _kept(states, "momentum_buffer") if momentum else []

        def rmsprops(gradients: list[torch.Tensor]) -> None:
            rmsprop(
                weights, gradients, squares, [], moved, steps, capturable=True, alpha=alpha, eps=eps, momentum=momentum,
                centered=False, **way, **common,
            )  # fmt: skip

        return rmsprops
    if isinstance(optimizer, torch.optim.SGD):
        momentum, nesterov = group["momentum"], group["nesterov"]
        buffers: list[Any] = _kept(states, "momentum_buffer") if momentum else [None] * len(weights)

        def sgds(gradients: list[torch.Tensor]) -> None:
            sgd(
                weights, gradients, buffers, momentum=momentum, nesterov=nesterov, dampening=0, maximize=False, **way, **common,
            )  # fmt: skip

        return sgds
    raise RunFailed(f"{type(optimizer).__name__} cannot be a part of a graph: use graph_of=model", kind="mismatch")


def _kept(states: Sequence[dict[str, Any]], name: str) -> list[torch.Tensor]:
    return [state[name] for state in states]


def _steps(
    states: Sequence[dict[str, Any]], weights: Sequence[torch.Tensor], *, fused: bool = False
) -> list[torch.Tensor]:
    """The counters of steps, moved to where the weights are: a graph must not fetch them. The optimizer goes on with the same ones.

    In fp64 they are fp64, because Adam's corrections are computed from them; but torch's fused update reads them as float32.
    """
    for state, weight in zip(states, weights, strict=True):
        kind = torch.float64 if weight.dtype == torch.float64 and not fused else torch.float32
        state["step"] = torch.as_tensor(state["step"]).to(device=weight.device, dtype=kind)
    return _kept(states, "step")


def total_norm(gradients: Gradients) -> torch.Tensor:
    """As the eager step takes it."""
    return torch.nn.utils.get_total_norm(list(gradients))
