"""A task's own schedule gives every group the rate that torch's scheduler would have set in a plain loop, step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # the first optimizer would: it sets an environment variable, and a test must not
from torch.optim import lr_scheduler

from paceline.base.errors import RunFailed
from paceline.worker.optim.own_schedule import own_schedule
from paceline.worker.optim.rates import Rates
from paceline.worker.optim.schedule import Length
from paceline.worker.tasks.load import load_task
from paceline.worker.tasks.task import Task

RUN = Length(steps=12, steps_per_epoch=5)
BASE = """
import torch
import torch._dynamo  # the first optimizer would: it sets an environment variable, and a test must not
from torch import nn
from torch.optim import lr_scheduler
def model(): return nn.Linear(2, 1)
def train_data(): return torch.zeros(4, 2), torch.zeros(4, 1)
test_data = train_data
"""
SCHEDULERS: dict[str, Callable[[Any, int], Any]] = {
    "CosineAnnealingLR(optimizer, {n})": lr_scheduler.CosineAnnealingLR,
    "OneCycleLR(optimizer, [0.3, 0.1], total_steps={n} + 1, cycle_momentum=False)": lambda o, n: (
        lr_scheduler.OneCycleLR(o, [0.3, 0.1], total_steps=n + 1, cycle_momentum=False)
    ),
    "StepLR(optimizer, 2, 0.5)": lambda o, n: lr_scheduler.StepLR(o, 2, 0.5),
    "LambdaLR(optimizer, [lambda s: 1 / (1 + s), lambda s: 0.9**s])": lambda o, n: lr_scheduler.LambdaLR(
        o, [lambda s: 1 / (1 + s), lambda s: 0.9**s]
    ),
    "SequentialLR(optimizer, [lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 3), lr_scheduler.ExponentialLR(optimizer, 0.8)], [3])": (
        lambda o, n: lr_scheduler.SequentialLR(
            o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 3), lr_scheduler.ExponentialLR(o, 0.8)], [3]
        )
    ),
}


def load(tmp_path: Path, text: str) -> Task:
    (tmp_path / "mine.py").write_text(BASE + text)
    return load_task(str(tmp_path / "mine.py"), {}, None)


def two_groups() -> torch.optim.Optimizer:
    first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    return torch.optim.SGD([{"params": [first]}, {"params": [second], "lr": 0.01}], lr=0.1, momentum=0.9)


def ours(tmp_path: Path, text: str) -> list[list[float]]:
    optimizer = two_groups()
    rates = Rates(optimizer, own_schedule(load(tmp_path, text), optimizer, RUN, top=0.1), 0.1)
    seen: list[list[float]] = []
    for step in range(RUN.steps):
        rates.set(step)
        seen.append([group["lr"] for group in optimizer.param_groups])
    return seen


def plain(make: Callable[[Any, int], Any], num: int, *, every: int) -> list[list[float]]:
    optimizer, seen = two_groups(), list[list[float]]()
    scheduler = make(optimizer, num)
    for step in range(RUN.steps):
        seen.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        if (step + 1) % every == 0:
            scheduler.step()
    return seen


@pytest.mark.parametrize("made", SCHEDULERS)
def test_a_scheduler_by_steps(tmp_path: Path, made: str) -> None:
    text = f"def schedule(optimizer, steps): return lr_scheduler.{made.format(n='steps')}"
    assert ours(tmp_path, text) == plain(SCHEDULERS[made], RUN.steps, every=1)


@pytest.mark.parametrize("made", SCHEDULERS)
def test_a_scheduler_by_epochs(tmp_path: Path, made: str) -> None:
    text = f"def schedule(optimizer, epochs): return lr_scheduler.{made.format(n='epochs')}"
    assert ours(tmp_path, text) == plain(SCHEDULERS[made], 3, every=RUN.steps_per_epoch)


def test_a_function_of_the_step_multiplies_every_group(tmp_path: Path) -> None:
    seen = ours(tmp_path, "def schedule(step, steps): return 1 - step / steps")
    assert seen == [
        [pytest.approx(0.1 * (1 - step / 12)), pytest.approx(0.01 * (1 - step / 12))] for step in range(RUN.steps)
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def schedule(step, steps): return None", "must return what lr is multiplied by"),
        ("def schedule(step, steps): return -1", "0 or more"),
        ("def schedule(step, steps): return float('nan')", "0 or more"),
        ("def schedule(optimizer, steps): return lr_scheduler.ReduceLROnPlateau(optimizer)", "ReduceLROnPlateau"),
        ("def schedule(optimizer, steps): return optimizer", "must return one of torch's schedulers"),
        (
            "def schedule(optimizer, steps): return lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps + 1)",
            "momentum of group 0",
        ),
    ],
)
def test_what_is_no_schedule_is_refused(tmp_path: Path, text: str, words: str) -> None:
    optimizer = two_groups()
    with pytest.raises(RunFailed, match=words):
        own_schedule(load(tmp_path, text), optimizer, RUN, top=0.1)(0)


def test_the_real_optimizer_is_not_touched(tmp_path: Path) -> None:
    optimizer = two_groups()
    before = [dict(group) for group in optimizer.param_groups]
    text = "def schedule(optimizer, steps): return lr_scheduler.OneCycleLR(optimizer, 9.0, total_steps=steps + 1, cycle_momentum=False)"
    rate = own_schedule(load(tmp_path, text), optimizer, RUN, top=0.1)
    assert [dict(group) for group in optimizer.param_groups] == before
    assert math.isclose(rate(0).groups[0], 9.0 / 25)
