"""Throughput and step counts against a clock with known answers: only steps take time on it, and an evaluation that is left out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo

from paceline.records.events import Epoch, Mark
from paceline.records.steady import pace
from paceline.spec.run import Spec
from paceline.worker import evaluations
from paceline.worker.assemble import assemble
from paceline.worker.loop import train
from paceline.worker.measure import clock
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.progress import Progress
from paceline.worker.shared_data import load_data
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.world.join import World

WORLD = World(rank=0, size=1, local_rank=0, host="here", device=torch.device("cpu"), backend="gloo")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0


def trained(monkeypatch: pytest.MonkeyPatch, **asked: Any) -> list[Any]:
    """The events of a run on 100 samples in batches of 32: a second for each of the first five steps, then 10 ms each."""
    time, events, num = Clock(), list[Any](), [0]
    monkeypatch.setattr(clock, "now", lambda: time.now)
    x, y = torch.randn(100, 4), torch.randint(0, 3, (100,))
    task = Task(
        "made up", lambda: torch.nn.Linear(4, 3), lambda: (x, y), lambda: (x, y), usual_forward, usual_loss, usual_score
    )
    spec = Spec(task="features", threads=1, device="cpu", update="single", weight_decay=0.0, batch=32, **asked)
    parts = assemble(spec, task, load_data(spec, task, rank=0), WORLD, Stopwatch("startup"), (None, "not asked"))
    step, evaluate = type(parts.step).__call__, evaluations.evaluate

    def timed(self: Any, step_input: Any, tally: Any) -> None:
        num[0] += 1
        step(self, step_input, tally)
        time.now += 1.0 if num[0] <= 5 else 0.01

    def evaluated(*given: Any) -> Any:
        time.now += 60.0
        return evaluate(*given)

    monkeypatch.setattr(type(parts.step), "__call__", timed)
    monkeypatch.setattr(evaluations, "evaluate", evaluated)
    observe: Any = SimpleNamespace(write=events.append)
    train(parts, Progress(parts, observe))
    return events


@pytest.mark.parametrize("log_every", [1, 4, 1000])
def test_throughput_is_samples_over_seconds_of_steps(log_every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    events = trained(monkeypatch, epochs=3, steps=None, log_every=log_every)
    marks = [event for event in events if isinstance(event, Mark)]
    assert sum(mark.num_global for mark in marks) == 300 and marks[-1].iteration == 12, "4 steps an epoch"
    found = pace(marks)
    assert (found.steady, found.dropped_steps) == (True, 5)
    # steps 6 to 12 have 32, 32, 4, 32, 32, 32 and 4 samples, in 10 ms each
    assert found.throughput == pytest.approx(168 / 0.07, rel=1e-9)
    epochs = [event for event in events if isinstance(event, Epoch) and event.split == "train"]
    assert [event.iteration for event in epochs] == [4, 8, 12]


def test_a_run_of_steps_ends_with_the_last_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    events = trained(monkeypatch, steps=6, epochs=None)
    marks = [event for event in events if isinstance(event, Mark)]
    assert marks[-1].iteration == 6 and sum(mark.num_global for mark in marks) == 100 + 64
    assert pace(marks).throughput == pytest.approx(32 / 0.01, rel=1e-9)
    tests = [event for event in events if isinstance(event, Epoch) and event.split == "test"]
    assert [event.num_total for event in tests] == [100, 100], "after the first epoch, and at the end"


def test_nothing_steady_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    events = trained(monkeypatch, steps=3, epochs=None)
    found = pace([event for event in events if isinstance(event, Mark)])
    assert (found.steady, found.dropped_steps) == (False, 0)
    assert found.throughput == pytest.approx(96 / 3.0, rel=1e-9)
