"""The benchmark that sets the constants of a GPU's graph: both ways of each choice compute the same, and the crossover is the right one."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

from paceline.worker.transform import crossovers
from paceline.worker.transform.tracing import trace

pytestmark = pytest.mark.usefixtures("compiled_elsewhere")
BENCHMARKS = Path(__file__).resolve().parents[4] / "benchmarks"
CHOICES = ("product", "product with a bias", "weight gradient")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("graph_choices")


def test_every_constant_has_a_choice_that_measures_it(benchmark: ModuleType) -> None:
    constants = {name: value for name, value in vars(crossovers).items() if name.isupper()}
    assert tuple(benchmark.CHOICES) == CHOICES
    assert {choice.constant: choice.present for choice in benchmark.CHOICES.values()} == constants


@pytest.mark.parametrize("name", CHOICES)
def test_both_ways_compute_the_same(benchmark: ModuleType, name: str) -> None:
    choice = benchmark.CHOICES[name]
    torch.manual_seed(0)
    made = choice.tensors(choice.grid[0], torch.device("cpu"))
    outs: list[torch.Tensor] = []
    for instead in (None, choice.instead):
        state = {key: tensor.double() for key, tensor in made.items()}
        traced = trace(choice.body, state, instead)
        ours = [node.target for node in traced.graph.graph.nodes if node.target in choice.instead]
        assert bool(ours) == (instead is None), "our way has another operator in its place"
        traced.graph(*traced.inputs)
        outs.append(state["out"])
    torch.testing.assert_close(*outs, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("name", CHOICES)
def test_no_shape_of_the_grid_sits_on_the_constant(benchmark: ModuleType, name: str) -> None:
    """A constant that is the size of a shape was made for that shape."""
    choice = benchmark.CHOICES[name]
    sizes = {choice.size(shape) for shape in choice.grid}
    assert len(sizes) > 5 and min(sizes) < choice.present < max(sizes) and choice.present not in sizes


def test_the_crossover_loses_least(benchmark: ModuleType) -> None:
    rows = [{"size": size, "ratio": ratio} for size, ratio in ((4, 3.0), (16, 0.9), (16, 1.5), (64, 1.2), (256, 0.25))]
    assert benchmark.crossover(rows) == 128.0
    assert benchmark.loss(rows, 128.0) == pytest.approx((1 / 0.9) ** (1 / 5) - 1)
    assert benchmark.loss(rows, 0.0) == pytest.approx((3.0 * 1.5 * 1.2) ** (1 / 5) - 1), "torch's way everywhere"


def test_where_one_way_wins_everywhere_there_is_no_crossover(benchmark: ModuleType) -> None:
    sizes = (1, 10, 100)
    assert benchmark.crossover([{"size": size, "ratio": 0.5} for size in sizes]) == 0.0
    assert benchmark.crossover([{"size": size, "ratio": 2.0} for size in sizes]) == math.inf
    choice = benchmark.CHOICES["weight gradient"]
    found = benchmark.concluded(choice, [{"size": size, "ratio": 2.0} for size in sizes])
    assert found["crossover"] is None and found["loss"] == 0.0
    assert "beyond the grid" in benchmark.said("weight gradient", found)
