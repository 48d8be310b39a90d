"""The learning rate as a task says it: a function of the step, or one of torch's schedulers. Either way it is known for every step before
the first one, so that it stays a pure function of the step's number.

A scheduler would have to be stepped at the right moments, and saved. It is run once beforehand instead, on an optimizer that has the
groups of the real one and trains nothing, and the rates it set are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from paceline.base.errors import RunFailed
from paceline.worker.optim.schedule import Length, Rate
from paceline.worker.tasks.hooks import parameters_of
from paceline.worker.tasks.task import Task, users_code

_MOVED_TOO = "use a scheduler that moves the rate only (cycle_momentum=False, say), or a schedule of ours"


class _Groups(torch.optim.Optimizer):
    """The groups of an optimizer, with parameters of its own; a step does nothing."""

    def __init__(self, like: torch.optim.Optimizer) -> None:
        groups = [
            {**{key: value for key, value in group.items() if key != "params"}, "lr": float(group["lr"]),
             "params": [torch.nn.Parameter(torch.zeros(1))]}
            for group in like.param_groups
        ]  # fmt: skip
        super().__init__(groups, dict(like.defaults))

    def step(self, closure: Any = None) -> None:
        """A scheduler wants to see that it was called."""


def own_schedule(task: Task, optimizer: torch.optim.Optimizer, run: Length, *, top: float) -> Callable[[int], Rate]:
    """`top`: the run's learning rate."""
    assert task.schedule is not None
    names = parameters_of(task.schedule)
    what = f"{task.name}: schedule({', '.join(names)})"
    with users_code(what, task.source):
        if names == ("step", "steps"):
            factor = task.schedule
            return lambda iteration: Rate(top * _factor(factor(min(iteration, run.steps - 1), run.steps), what))
        rows = _rows(task, optimizer, run, by_epochs=names[1] == "epochs", what=what)
    last = len(rows) - 1
    return lambda iteration: rows[min(iteration, last)]


def _factor(value: Any, what: str) -> float:
    number = float(value) if isinstance(value, int | float | torch.Tensor) else math.nan
    if not math.isfinite(number) or number < 0:
        raise RunFailed(
            f"{what} returned {value!r}; it must return what lr is multiplied by in this step: a number, 0 or more",
            kind="task",
        )
    return number


def _rows(task: Task, optimizer: torch.optim.Optimizer, run: Length, *, by_epochs: bool, what: str) -> list[Rate]:
    """The rates of each step."""
    assert task.schedule is not None
    copy = _Groups(optimizer)
    before = _options(copy)
    scheduler = task.schedule(copy, run.epochs if by_epochs else run.steps)
    if isinstance(scheduler, ReduceLROnPlateau) or not isinstance(scheduler, LRScheduler):
        raise RunFailed(
            f"{what} returned a {type(scheduler).__name__}; it must return one of torch's schedulers that follow the step or the epoch "
            "alone (ReduceLROnPlateau follows what is measured)",
            kind="task",
        )
    rows: list[Rate] = []
    for iteration in range(run.steps):
        rates = tuple(float(group["lr"]) for group in copy.param_groups)
        if rows and rows[-1].groups == rates:
            rows.append(rows[-1])  # the same object: nothing is written in such a step
        else:
            rows.append(Rate(rates[0], groups=rates))
        copy.step()
        if not by_epochs or (iteration + 1) % run.steps_per_epoch == 0:
            scheduler.step()
        if moved := [name for name, value in _options(copy).items() if before.get(name, value) != value]:
            raise RunFailed(f"{what}: {type(scheduler).__name__} moves {moved[0]} too: {_MOVED_TOO}", kind="task")
    return rows


def _options(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """All but the rate, and what schedulers keep in the groups for themselves (`initial_lr`)."""
    return {
        f"{key} of group {index}": value
        for index, group in enumerate(optimizer.param_groups)
        for key, value in group.items()
        if key != "params" and "lr" not in key
    }
