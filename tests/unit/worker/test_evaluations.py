"""Evaluations in the middle of an epoch: training goes on to the same bits, and each is written down with its step."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from made_step import WORLD
from paceline.records.events import Epoch, Event
from paceline.spec.steps import num_evaluations
from paceline.spec.verdict import Verdict
from paceline.worker.loop import train
from paceline.worker.progress import Progress
from paceline.worker.step.state import Snapshot
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_loss, usual_score
from round_trip import NUM, assembled, differences, network, spec_of, task

STEPS = 6  # of an epoch: 44 samples in batches of 8
IN_STEPS: dict[str, Any] = {"optimizer": "adam", "epochs": 2}


class Restless(torch.nn.Module):
    """Draws, counts and changes a buffer whenever it is called, in evaluation as well; and trains by what it has counted."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.calls, self.last = network(), 0, torch.zeros(1)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen += len(x)
        self.last = self.last + x.mean().detach()
        outputs = self.network(x) * (1 + 0.01 * self.calls) + 0.001 * self.seen + 0.1 * self.last
        return outputs + 0.1 * torch.randn_like(outputs)


def restless() -> Task:
    plain = task()
    return Task(
        "restless",
        Restless,
        plain.train_data,
        plain.test_data,
        lambda model, batch: model(batch[0]),
        usual_loss,
        usual_score,
    )


def bounded() -> Task:
    """Its forward holds the weights within bounds that move with the batch, in evaluation as well."""

    def forward(model: torch.nn.Module, batch: Any) -> Any:
        with torch.no_grad():
            for weight in model.parameters():
                weight.clamp_(-0.1 - 0.01 * float(batch[0].abs().mean()), 0.1)
        return model(batch[0])

    return replace(task(), forward=forward, verdict=Verdict(moves_weights=True))


def trained(own: Task, **asked: Any) -> tuple[Snapshot, list[Epoch]]:
    parts = assembled(spec_of(**asked), WORLD, own)
    events: list[Event] = []
    observe: Any = SimpleNamespace(write=events.append)
    train(parts, Progress(parts, observe))
    return parts.state.copy_out(), [event for event in events if isinstance(event, Epoch)]


@pytest.mark.parametrize("own", [task, restless, bounded])
@pytest.mark.parametrize("asked", [{}, {"accumulate": 2}, {"shuffle": False, "steps": 10, "epochs": None}])
def test_training_ends_with_the_same_bits(own: Any, asked: dict[str, Any]) -> None:
    asked = {**IN_STEPS, **asked}
    plain, _ = trained(own(), **asked)
    watched, events = trained(own(), **asked, evaluate_every=1)
    assert not differences(plain, watched)
    assert sum(event.middle for event in events) > 7


def test_each_has_its_step_and_the_ends_of_epochs_stay_what_they_were() -> None:
    asked = {**IN_STEPS, "epochs": 3}
    plain, watched = trained(task(), **asked)[1], trained(task(), **asked, evaluate_every=4)[1]
    rows = [(event.split, event.epoch, event.iteration, event.middle) for event in watched]
    assert rows == [
        ("test", 0, 4, True), ("train", 0, 6, False), ("test", 0, 6, False),
        ("test", 1, 8, True), ("train", 1, 12, False), ("test", 1, 12, False),  # step 12 is both: one evaluation
        ("test", 2, 16, True), ("train", 2, 18, False), ("test", 2, 18, False),
    ]  # fmt: skip
    ends = [(event.split, event.iteration, event.total) for event in watched if not event.middle]
    assert ends == [(event.split, event.iteration, event.total) for event in plain]
    assert all(event.num_total == event.of == NUM for event in watched)
    assert sum(event.split == "test" for event in watched) == num_evaluations(spec_of(**asked, evaluate_every=4), NUM)


def test_it_is_the_model_of_that_step() -> None:
    """The score in the middle is that of a run of so many steps."""
    middle = next(event for event in trained(task(), **IN_STEPS, evaluate_every=4)[1] if event.middle)
    short = trained(task(), **{**IN_STEPS, "epochs": None}, steps=4)[1][-1]
    assert (middle.iteration, middle.total) == (short.iteration, short.total)
