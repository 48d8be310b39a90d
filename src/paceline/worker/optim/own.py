"""An optimizer that a task brings along: `optimizer(model, lr)`, with its own groups, and perhaps a class of its own.

A class that torch has is computed by our formulas inside a graph; any other one's `step()` is traced as it stands, which works where it
is made of tensor operations alone.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.optim.joint import Joint
from paceline.worker.optim.rule import Formula, Group, Rate, Tensors
from paceline.worker.tasks.task import Task, users_code

LOST = (
    "{asked}: {name}.step() keeps {what} outside of tensors, which a graph would hold for ever: keep it in a tensor, or use "
    "graph_of=model"
)


def build_own(task: Task, model: torch.nn.Module, lr: float) -> torch.optim.Optimizer:
    """What the task returns, if it is an optimizer, or several by name, of just this model's parameters."""
    function = task.optimizer if task.optimizers is None else task.optimizers
    assert function is not None
    what = f"{task.name}: {'optimizer' if task.optimizers is None else 'optimizers'}(model, lr)"
    with users_code(what, task.source):
        made: Any = function(model, lr)
    if task.optimizers is not None:
        made = _several(made, what)
    elif not isinstance(made, torch.optim.Optimizer):
        raise RunFailed(f"{what} returned a {type(made).__name__}, not a torch.optim.Optimizer", kind="task")
    _of_just_this_model(made, model, what)
    if task.optimizers is None:
        _refuse_closure(made, what)
    return made


def _refuse_closure(optimizer: torch.optim.Optimizer, what: str) -> None:
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise RunFailed(
            f"{what} returned a {type(optimizer).__name__}, whose step() computes the loss several times through a closure; one step here "
            "is one loss: define optimizers(model, lr) and step(model, batch, optimizers), and call it there",
            kind="task",
        )


def refuse_hooks(optimizer: torch.optim.Optimizer, asked: str) -> None:
    """A graph has the formulas of the update, or a trace of `step()`: what is hung around it would be left out."""
    hooks = any(getattr(optimizer, f"_optimizer_step_{when}_hooks", None) for when in ("pre", "post"))
    step: Any = vars(optimizer).get("step")  # a scheduler of torch's puts its own there, which counts calls
    if hooks or (step is not None and not hasattr(step, "_wrapped_by_lr_sched")):
        raise RunFailed(
            f"{asked}: the task's optimizer does more than {type(optimizer).__name__}.step() (a hook, or a step of its own), which a graph "
            "of the step would leave out: use graph_of=model, or graph=eager",
            kind="mismatch",
        )


def _several(made: Any, what: str) -> Joint:
    if (
        not isinstance(made, Mapping)
        or not made
        or not all(isinstance(one, torch.optim.Optimizer) for one in made.values())
    ):
        raise RunFailed(
            f'{what} returned a {type(made).__name__}; it must return a dict of torch.optim.Optimizers by name: {{"g": ..., "d": ...}}',
            kind="task",
        )
    named: dict[Any, Any] = {**made}
    seen: dict[int, Any] = {}
    for name, one in named.items():
        for parameter in (parameter for group in one.param_groups for parameter in group["params"]):
            if seen.setdefault(id(parameter), name) != name:
                raise RunFailed(
                    f"{what}: {seen[id(parameter)]!r} and {name!r} update the same parameter (of shape {list(parameter.shape)}); give each "
                    "its own",
                    kind="task",
                )
    return Joint([*named.values()], [str(name) for name in named])


def _of_just_this_model(optimizer: torch.optim.Optimizer, model: torch.nn.Module, what: str) -> None:
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    given = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    strange = given - {id(parameter) for parameter in model.parameters()}
    if strange or not trained <= given:
        found = f"{len(strange)} that are not the model's" if strange else f"not {len(trained - given)} of the model's"
        raise RunFailed(
            f"{what} was given a model with {len(trained)} trained parameters, and updates {found}: build it from model.parameters(), and "
            "freeze what should not be trained (requires_grad=False)",
            kind="task",
        )


def traced_step(
    optimizer: torch.optim.Optimizer, group: Group, states: list[dict[str, Any]], *, asked: str, rate_moves: bool
) -> Formula:
    """`step()` of a copy whose parameters are the graph's. `rate_moves`: the rate is a tensor then; otherwise a number, which every
    optimizer takes."""

    def update(weights: Tensors, gradients: Tensors, state: dict[str, Tensors], rate: Rate) -> None:
        copy: Any = object.__new__(type(optimizer))
        vars(copy).update(vars(optimizer))
        copy.param_groups = [{**group, "params": weights, "lr": rate["lr"] if rate_moves else group["lr"]}]
        copy.state = defaultdict(dict)
        for index, (weight, gradient) in enumerate(zip(weights, gradients, strict=True)):
            weight.grad = gradient
            own = {name: value for name, value in states[index].items() if not isinstance(value, torch.Tensor)}
            copy.state[weight] = {**own, **{name: tensors[index] for name, tensors in state.items()}}
        before = _plain(copy)
        step: Any = type(optimizer).step
        getattr(step, "__wrapped__", step)(
            copy
        )  # torch hangs its profiler around it, whose marks are no part of a graph
        if lost := [name for name, value in _plain(copy).items() if before.get(name) != value]:
            raise RunFailed(LOST.format(asked=asked, name=type(optimizer).__name__, what=lost[0]), kind="mismatch")
        for index, weight in enumerate(weights):
            weight.grad = None
            for name, tensors in state.items():
                if copy.state[weight][name] is not tensors[index]:  # it put another tensor in its place
                    tensors[index].copy_(copy.state[weight][name])

    return update


def _plain(copy: Any) -> dict[str, Any]:
    """Every value of its groups and states that is no tensor, by name."""
    rows = {f"group[{name!r}]": value for name, value in copy.param_groups[0].items() if name != "params"}
    for index, own in enumerate(copy.state.values()):
        rows |= {f"state[{index}][{name!r}]": value for name, value in own.items()}
    return {name: value for name, value in rows.items() if not isinstance(value, torch.Tensor)}
