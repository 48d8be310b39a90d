"""What counts as a block of a model, for FSDP and for recomputation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from paceline.base.errors import RunFailed
from paceline.worker.sharding.units import units
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score


def task(named: Callable[[nn.Module], list[nn.Module]] | None = None) -> Task:
    nothing: Any = lambda: None  # noqa: E731
    return Task("made", nothing, nothing, nothing, usual_forward, usual_loss, usual_score, units=named)


def names(model: nn.Module, named: Callable[[Any], list[nn.Module]] | None = None) -> list[str]:
    known = {id(module): name for name, module in model.named_modules()}
    return [known[id(unit)] for unit in units(task(named), model)]


def layer() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU())


class Written(nn.Module):
    """With a forward of its own: nobody goes through its children."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Any) -> Any:
        return self.inside(x)


def wrapped(**children: nn.Module) -> nn.Module:
    model = nn.Module()
    for name, child in children.items():
        model.add_module(name, child)
    return model


SHARED = layer()


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), [""]),  # no blocks: the model is one
        (nn.Linear(2, 2), [""]),
        (nn.Sequential(nn.Linear(2, 2), layer(), layer()), ["1", "2"]),
        (wrapped(a=nn.Embedding(3, 2), b=nn.ModuleList([layer(), nn.Linear(2, 2), nn.ReLU()])), ["b.0", "b.1"]),  # a ReLU is none
        (wrapped(inside=wrapped(h=nn.ModuleList([layer(), layer()])), head=nn.Linear(2, 2)), ["inside.h.0", "inside.h.1"]),
        (wrapped(all=nn.ModuleDict({"x": layer(), "y": nn.ModuleList([layer()])})), ["all.x", "all.y.0"]),
        (wrapped(layer1=nn.Sequential(layer(), layer()), layer2=nn.Sequential(layer())), ["layer1.0", "layer1.1", "layer2.0"]),
        (wrapped(b=nn.ModuleList([SHARED, SHARED, layer()])), ["b.0", "b.2"]),  # once, however often it is called
        (wrapped(b=nn.ModuleList([nn.ModuleList([layer()]), layer()])), ["b.0.0", "b.1"]),
        # a sequence may be called or gone through, and nobody knows: its blocks are called either way
        (wrapped(layers=layer(), head=nn.Linear(2, 2)), [""]),
        (wrapped(a=Written(layer()), b=layer(), c=wrapped(d=nn.Linear(2, 2))), ["a"]),
        (wrapped(body=Written(nn.Sequential(nn.Linear(2, 2), layer())), head=nn.Linear(2, 2)), ["body.inside.1"]),
        (nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)}), [""]),
    ],
)  # fmt: skip
def test_blocks_are_found(model: nn.Module, found: list[str]) -> None:
    assert names(model) == found


def test_a_task_names_its_own() -> None:
    model = nn.Sequential(layer(), layer(), nn.Linear(2, 2))
    assert names(model, lambda m: [m[2], m[0], m[0]]) == ["2", "0"]


@pytest.mark.parametrize("named", [[], [nn.Linear(2, 2)], "a list"], ids=["none", "another-model's", "never-called"])
def test_what_is_no_unit_is_refused(named: Any) -> None:
    model = wrapped(b=nn.ModuleList([layer()]))
    with pytest.raises(RunFailed, match=r"units\(model\) must return modules of the model that are called"):
        names(model, lambda m: [m.b] if named == "a list" else named)
