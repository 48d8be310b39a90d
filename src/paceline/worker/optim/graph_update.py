"""An optimizer's update as a part of a graph, group by group: on its own state, with every number that changes kept in a tensor.

A plain number would become a constant of the graph, which no schedule could change. The optimizer object stays as it is
and makes the steps that run eagerly: both work on the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.optim.own import traced_step
from paceline.worker.optim.rates import RateInTensors, Rates
from paceline.worker.optim.rule import Formula, Group, HostNumbers, Tensors, UpdateRule, step_counters
from paceline.worker.optim.schedule import Rate
from paceline.worker.optim.table import rule_of


@dataclass(slots=True)
class _Group:
    """The parameters of one group that got a gradient in the first step, and how they are updated."""

    optimizer: torch.optim.Optimizer
    group: Group
    parameters: list[torch.nn.Parameter]
    rate: RateInTensors
    rule: UpdateRule | None  # None: a task's own class, whose step() is traced
    host: HostNumbers | None = field(default=None)
    known: dict[str, Tensors] = field(default_factory=dict[str, Tensors])  # the state's tensors that a graph knows

    @property
    def states(self) -> list[dict[str, Any]]:
        """Looked up each time: a state from before the first step is put back by taking these out, and the next step makes new ones."""
        return [self.optimizer.state[parameter] for parameter in self.parameters]

    def state(self) -> dict[str, Tensors]:
        """The optimizer's own state, which its first step has made. Step counters are moved to the device of the
        weights; they are fp64 where those are."""
        first = self.states[0].get("step")
        if first is not None and (self.rule is not None or isinstance(first, torch.Tensor)):
            step_counters(self.states, self.parameters)
        self.remember()
        return self.known

    def remember(self) -> None:
        states = self.states
        names = [name for name, value in states[0].items() if isinstance(value, torch.Tensor)]
        self.known = {name: [state[name] for state in states] for name in names}

    @torch.no_grad()
    def keep_known(self) -> None:
        """A step outside of the graph may replace tensors of the state: the new values are copied into those that the
        graph holds. There is nothing to copy between a state from before the first step and that step."""
        for name, tensors in self.known.items():
            for parameter, tensor in zip(self.parameters, tensors, strict=True):
                state = self.optimizer.state.get(parameter, {})
                if name in state and state[name] is not tensor:
                    tensor.copy_(state[name])
                    state[name] = tensor

    def needs_host(self) -> None:
        """On a CPU; see `HostNumbers`."""
        weight = self.parameters[0]
        if self.rule is not None and self.rule.host_numbers is not None and weight.device.type == "cpu":
            dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
            self.host = self.rule.host_numbers(self.group, lambda: self.states, dtype)


class GraphUpdate:
    """What the graphs of a step need of the optimizer. It is made after the first step, when the state and the
    gradients exist."""

    def __init__(self, optimizer: torch.optim.Optimizer, rates: Rates, *, asked: str) -> None:
        self._optimizer, self._rates, self._asked = optimizer, rates, asked
        self._groups = self._trained()
        self.parameters = [parameter for group in self._groups for parameter in group.parameters]
        self._last: Rate | None = None
        self._is_read = False

    def _trained(self) -> list[_Group]:
        """A graph updates the parameters that have a gradient, as the optimizer would."""
        rule, groups = rule_of(self._optimizer), list[_Group]()
        both = zip(self._optimizer.param_groups, self._rates.factors, strict=True)
        for index, (group, factor) in enumerate(both):
            parameters: list[torch.nn.Parameter] = [p for p in group["params"] if p.grad is not None]
            if not parameters:
                continue
            if any(p.grad is not None and p.grad.layout != torch.strided for p in parameters):
                raise RunFailed(
                    f"{self._asked}: a parameter has sparse gradients, whose size changes from step to step, which a graph cannot "
                    "hold: use graph_of=model, or a table with sparse=False",
                    kind="mismatch",
                )
            if rule is not None and (option := rule.unknown_option(group)) is not None:
                raise RunFailed(
                    f"{self._asked}: the task's optimizer has {option}, which the update in a graph does not know: use "
                    "graph_of=model, or graph=eager",
                    kind="mismatch",
                )
            rate = RateInTensors(group, parameters[0], index=index, factor=factor, moves_beta=self._rates.moves_beta)
            groups.append(_Group(self._optimizer, group, parameters, rate, rule))
        if not groups:
            raise RunFailed(f"{self._asked}: no parameter had a gradient in the first step", kind="mismatch")
        kinds = {(p.dtype, p.device, hasattr(p, "placements")) for group in groups for p in group.parameters}
        if len(kinds) > 1:
            raise RunFailed(f"{self._asked}: the model has parameters of several kinds", kind="mismatch")
        return groups

    @property
    def is_own(self) -> bool:
        """The class is the task's own: its step() is traced, and the trace must be compared with the untraced one."""
        return any(group.rule is None for group in self._groups)

    # ---- in a traced graph ----

    def tensors(self) -> list[dict[str, Any]]:
        """What the graph works on besides weights and gradients, for each group."""
        for group in self._groups:
            group.needs_host()
        return [
            {"state": group.state(), "rate": {**group.rate.tensors, **(group.host.tensors if group.host else {})}}
            for group in self._groups
        ]

    def __call__(self, weights: Tensors, gradients: Tensors, tensors: list[dict[str, Any]]) -> None:
        """Inside the graph: weights and state, changed in place."""
        start = 0
        for group, given in zip(self._groups, tensors, strict=True):
            stop = start + len(group.parameters)
            self._formula(group)(weights[start:stop], gradients[start:stop], given["state"], given["rate"])
            start = stop

    def _formula(self, group: _Group) -> Formula:
        if group.rule is not None:
            return group.rule.formula(group.group)
        return traced_step(self._optimizer, group.group, group.states, asked=self._asked, rate_moves=self._rates.moves)

    # ---- in a recording of kernels ----

    def captured(self) -> Callable[[Tensors], None]:
        """Changes weights and state in place, by torch's own functions, without reading a value on the host."""
        updates: list[tuple[int, Callable[[Tensors], None]]] = []
        for group in self._groups:
            if group.rule is None:
                raise RunFailed(
                    f"{self._asked}: the task's optimizer is a {type(self._optimizer).__name__}, and a recording holds torch's own update "
                    "rules only: use graph=compile, or graph=eager",
                    kind="mismatch",
                )
            rate = group.rate.tensors
            updates.append(
                (len(group.parameters), group.rule.captured(group.group, list(group.parameters), group.states, rate))
            )
            group.remember()

        def update(gradients: Tensors) -> None:
            start = 0
            for num, one in updates:
                one(gradients[start : start + num])
                start += num

        return update

    # ---- before each run of the graph ----

    def advance(self) -> None:
        """Called before each step: writes rates that changed into their tensors, and computes the scalars of the
        host."""
        rate = self._rates.current
        if rate is not self._last and rate is not None:
            for group in self._groups:
                group.rate.fill(rate)
            self._last = rate
        for group in self._groups:
            if group.host is not None:
                if not self._is_read:
                    group.host.read_steps()
                group.host.advance()
        self._is_read = True

    def forget(self) -> None:
        """Steps were made outside of the graph, or the state was put back: cached values are read again."""
        self._is_read, self._last = False, None
        for group in self._groups:
            group.keep_known()
