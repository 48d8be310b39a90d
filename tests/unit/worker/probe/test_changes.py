"""What a task leaves changed, and whether its data moves with the step's number."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.worker.probe.bends import bends
from paceline.worker.probe.by_number import moves_data
from paceline.worker.tasks.by_number import ByNumber
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score

NET = torch.nn.Linear(3, 2)


class Curriculum:
    level = 0

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        return torch.full((3,), float(index + self.level)), index % 2


class Noisy(Curriculum):
    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x + torch.rand(3), y


@pytest.mark.parametrize(
    ("data", "factor", "moves"), [(Curriculum, 1, True), (Curriculum, 0, False), (Noisy, 0, False), (Noisy, 1, True)]
)
def test_data_that_moves_with_the_epoch(data: type[Curriculum], factor: int, moves: bool) -> None:
    dataset = data()

    def on_epoch(epoch: int, epochs: int) -> None:
        dataset.level = factor * epoch

    task = Task("t.py", lambda: NET, list, list, usual_forward, usual_loss, usual_score, on_epoch=on_epoch)
    feed = make_feed(dataset, what="", collate=None)
    assert moves_data(task, feed, ByNumber(task, NET, 10, 5), steps=10, epochs=5) is moves
    assert dataset.level == 0, "as at the start"


X = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
Y = torch.arange(8) % 2
BENT: dict[str, Any] = {
    "clamp": lambda ce, z: ce.clamp(min=0.5), "abs": lambda ce, z: (ce - 0.9).abs(), "root": lambda ce, z: ce.sqrt(),
    "product": lambda ce, z: ce * z, "quotient": lambda ce, z: ce / z, "larger": torch.max, "log": lambda ce, z: 1 + ce.log(),
}  # fmt: skip
STRAIGHT: dict[str, Any] = {
    "itself": lambda ce, z: ce, "sum": lambda ce, z: ce + 0.1 * z, "half": lambda ce, z: ce / 2 - 1, "list": lambda ce, z: sum([ce, z]),
    "penalty": lambda ce, z: ce + 0.1 * sum(p.pow(2).sum() for p in NET.parameters()),
    "root of weights": lambda ce, z: ce + NET.weight.norm().sqrt(),
    "stacked": lambda ce, z: torch.stack([ce, z]).mean(),
}  # fmt: skip


@pytest.mark.parametrize("name", [*BENT, *STRAIGHT])
def test_a_loss_bends_where_a_reduced_number_does(name: str) -> None:
    outputs = NET(X)
    cross, square = torch.nn.functional.cross_entropy(outputs, Y), outputs.square().mean()
    assert bends({**BENT, **STRAIGHT}[name](cross, square), [outputs]) is (name in BENT)


def test_a_learned_temperature_bends_nothing() -> None:
    temperature = torch.nn.Parameter(torch.tensor(0.1))
    outputs = NET(X)
    cross = torch.nn.functional.cross_entropy(outputs * temperature.exp(), Y)
    assert not bends(cross * torch.exp(-temperature) + temperature, [outputs])
