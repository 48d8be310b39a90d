"""What an update rule is: one torch optimizer in every form that Paceline runs it in.

A graph cannot call the optimizer: it would keep the learning rate and the step's number of one step for ever. So a rule also knows its
update as functions of tensors, which work on the optimizer's own state: steps inside and outside of a graph continue each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from paceline.spec.run import Spec

Tensors = list[torch.Tensor]
Group = dict[str, Any]  # one of the optimizer's param_groups
Rate = dict[str, torch.Tensor]  # "lr"; "beta" where the schedule moves it; what `HostNumbers` adds
# (weights, gradients, the optimizer's state by name, the rate): weights and state are changed in place
Formula = Callable[[Tensors, Tensors, dict[str, Tensors], Rate], None]
# gradients -> weights and state changed in place
Captured = Callable[[Tensors], None]


class HostNumbers(Protocol):
    """Scalars of a step that are computed on the host before the graph runs, because a graph would compute them again
    for every few weights. `tensors` is where the graph reads them."""

    tensors: dict[str, torch.Tensor]

    def read_steps(self) -> None:
        """How many steps each parameter has made; after steps that were not the graph's own."""
        ...

    def advance(self) -> None:
        """To the next step."""
        ...


@dataclass(frozen=True, slots=True)
class UpdateRule:
    """`build`: torch's optimizer from parameter groups, the spec and the options all rules share. `formula`: the update in a traced
    graph. `captured`: the same by torch's own functions, for a graph that records kernels. `options`: the settings of a group that
    formulas know, each with the values it may have; a group with another value is not ours to compute."""

    torch_class: type[torch.optim.Optimizer]
    build: Callable[[list[Group], Spec, dict[str, Any]], torch.optim.Optimizer]
    formula: Callable[[Group], Formula]
    captured: Callable[[Group, Tensors, Sequence[dict[str, Any]], Rate], Captured]
    host_numbers: Callable[[Group, Callable[[], Sequence[dict[str, Any]]], torch.dtype], HostNumbers] | None = None
    plain_options: tuple[tuple[str, Any], ...] = ()

    def unknown_option(self, group: Group) -> str | None:
        """The first option of a group that the formulas do not know, as `name=value`; None where they know all."""
        return next(
            (f"{name}={group[name]}" for name, value in self.plain_options if group.get(name, value) != value), None
        )


def kept(states: Sequence[dict[str, Any]], name: str) -> Tensors:
    return [state[name] for state in states]


def step_counters(states: Sequence[dict[str, Any]], weights: Sequence[torch.Tensor], *, fused: bool = False) -> Tensors:
    """Moved to the device of the weights, because a graph must not fetch them; the optimizer goes on with the same
    tensors. With fp64 weights they are fp64, because Adam's corrections are computed from them. But torch's fused
    update reads them as float32."""
    for state, weight in zip(states, weights, strict=True):
        dtype = torch.float64 if weight.dtype == torch.float64 and not fused else torch.float32
        state["step"] = torch.as_tensor(state["step"]).to(device=weight.device, dtype=dtype)
    return kept(states, "step")
