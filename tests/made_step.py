"""Everything a step needs, put together by hand for a test: one process, a model and a task of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.spec.run import Spec
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.optim.build import build_optimizer
from paceline.worker.optim.rates import Rates
from paceline.worker.optim.scale import LossScale
from paceline.worker.optim.schedule import Rate
from paceline.worker.sharding.replicate import Replicated
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.step.description import StepDescription
from paceline.worker.step.executor import StepParts
from paceline.worker.step.state import TrainState
from paceline.worker.step.update import Update
from paceline.worker.tasks.feed import TensorFeed
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.transform.flow import Flow
from paceline.worker.transform.precision import Arithmetic
from paceline.worker.world.join import World

WORLD = World(rank=0, size=1, local_rank=0, host="here", device=torch.device("cpu"), backend="gloo")


def task_of(model: torch.nn.Module, **functions: Any) -> Task:
    given = {"forward": usual_forward, "loss": usual_loss, "score": usual_score, **functions}
    return Task("made up", lambda: model, list, list, **given)


def step_parts(
    model: torch.nn.Module, spec: Spec, *, task: Task | None = None, optimizer: torch.optim.Optimizer | None = None,
    schedule: Callable[[int], Rate] | None = None, scale: LossScale | None = None, data: Any = None,
) -> StepParts:  # fmt: skip
    """As `assemble` puts them together. Without a schedule the optimizer's own rate stays."""
    task = task or task_of(model)
    task_module = TaskModule(model, task)
    optimizer = optimizer or build_optimizer(model, spec, task)
    lr = float(optimizer.param_groups[0]["lr"])
    sharding = Replicated(task_module, WORLD)
    state = TrainState(model, optimizer, WORLD.device, scale, others={"sharding": sharding})
    rates = Rates(optimizer, schedule or (lambda _: Rate(lr)), lr, moves=schedule is not None)
    description = StepDescription(task, Arithmetic(spec, WORLD.device, Flow(model)), in_one_piece=spec.accumulate == 1)
    update = Update(state, sharding, rates, clip=spec.clip)
    return StepParts(
        task_module,
        description,
        state,
        update,
        sharding,
        WORLD,
        Stopwatch("data"),
        spec.batch,
        None if data is None else TensorFeed(data),
    )
