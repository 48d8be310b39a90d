"""torch's update rules as formulas on lists of tensors, for a step that is traced: every number that changes is a tensor.

torch's own functions look at the learning rate or at the step's number on a CPU, unless it is torch's compiler that calls them; a
traced graph would hold the values of one step for ever. They work on the optimizer's own state, which goes on with it in the
steps that are not traced. tests/unit/worker/transform/test_formulas.py compares each with torch's.
"""

# pyright: reportPrivateImportUsage=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from paceline.base.errors import RunFailed

Tensors = list[torch.Tensor]
# (weights, gradients, the optimizer's state, the rate), all changed in place but the gradients' own tensors
Formula = Callable[[Tensors, Tensors, dict[str, Tensors], dict[str, torch.Tensor]], None]


def formula(optimizer: torch.optim.Optimizer) -> Formula:
    group = optimizer.param_groups[0]
    if isinstance(optimizer, torch.optim.Adam):  # AdamW is one of them
        return _adam(group)
    if isinstance(optimizer, torch.optim.RMSprop):
        return _rmsprop(group)
    if isinstance(optimizer, torch.optim.SGD):
        return _sgd(group)
    raise RunFailed(f"{type(optimizer).__name__} cannot be a part of a graph: use graph_of=model", kind="mismatch")


def kept(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> dict[str, Tensors]:
    """The optimizer's own state, which its first step has made; counters of steps where the weights are, and as exact as they."""
    states = [optimizer.state[parameter] for parameter in parameters]
    for state, weight in zip(states, parameters, strict=True):
        if "step" in state:
            kind = torch.float64 if weight.dtype == torch.float64 else torch.float32
            state["step"] = torch.as_tensor(state["step"]).to(device=weight.device, dtype=kind)
    names = [name for name, value in states[0].items() if isinstance(value, torch.Tensor)]
    return {name: [state[name] for state in states] for name in names}


class Corrections:
    """Adam's two numbers of a step, for each parameter, computed on the host before it: the rate over the first correction, and the
    root of the second. Inside a graph a C++ compiler's loop over the weights would take two powers for every sixteen of them (a third
    of the step of a small model); on a GPU it costs nothing there, and a copy from the host would.
    """

    def __init__(self, optimizer: torch.optim.Adam, parameters: list[torch.nn.Parameter]) -> None:
        self._group, self._states = optimizer.param_groups[0], [optimizer.state[parameter] for parameter in parameters]
        kind = torch.float64 if parameters[0].dtype == torch.float64 else torch.float32
        self.tensors = {name: torch.zeros(len(parameters), dtype=kind) for name in ("size", "root")}
        self._size, self._root = (tensor.numpy() for tensor in self.tensors.values())  # the same memory
        self._steps: list[float] = []

    def look(self) -> None:
        """How many steps each has made: after steps that were not the graph's own. One that some step did not use has made fewer."""
        steps = [float(state["step"]) for state in self._states]
        self._steps = steps if len(set(steps)) > 1 else steps[:1]

    def advance(self) -> None:
        """To the next step, at the rate that the optimizer's group has by now."""
        lr, (first, second) = float(self._group["lr"]), self._group["betas"]
        self._steps = [step + 1 for step in self._steps]
        self._size[:] = [lr / (1 - first**step) for step in self._steps]
        self._root[:] = [math.sqrt(1 - second**step) for step in self._steps]


def corrections(optimizer: torch.optim.Optimizer, parameters: list[torch.nn.Parameter]) -> Corrections | None:
    """Where they are needed: for Adam, on a host."""
    if isinstance(optimizer, torch.optim.Adam) and parameters[0].device.type == "cpu":
        return Corrections(optimizer, parameters)
    return None


def _adam(group: dict[str, Any]) -> Formula:
    (beta, other), eps, decay = group["betas"], group["eps"], group["weight_decay"]
    decoupled = group["decoupled_weight_decay"]

    def update(weights: Tensors, gradients: Tensors, state: dict[str, Tensors], rate: dict[str, torch.Tensor]) -> None:
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


def _rmsprop(group: dict[str, Any]) -> Formula:
    alpha, eps, momentum, decay = group["alpha"], group["eps"], group["momentum"], group["weight_decay"]

    def update(weights: Tensors, gradients: Tensors, state: dict[str, Tensors], rate: dict[str, torch.Tensor]) -> None:
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


def _sgd(group: dict[str, Any]) -> Formula:
    momentum, nesterov, decay = group["momentum"], group["nesterov"], group["weight_decay"]

    def update(weights: Tensors, gradients: Tensors, state: dict[str, Tensors], rate: dict[str, torch.Tensor]) -> None:
        if decay:
            gradients = list(torch._foreach_add(gradients, weights, alpha=decay))
        if momentum:
            buffers = state["momentum_buffer"]
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, gradients)
            gradients = list(torch._foreach_add(gradients, buffers, alpha=momentum)) if nesterov else buffers
        torch._foreach_sub_(weights, torch._foreach_mul(gradients, rate["lr"]))

    return update
