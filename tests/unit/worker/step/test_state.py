"""A state that is copied out and put back goes on to the same bits, for every executor and optimizer: nothing is missing from it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from made_step import WORLD
from paceline.base.errors import RunFailed
from paceline.worker.loop import train
from paceline.worker.progress import Progress
from paceline.worker.step.compiled import CompiledStep
from paceline.worker.step.state import Snapshot
from round_trip import advance, assembled, differences, round_trip, spec_of, started, stepped, task
from unit_step import DrawingOnHost, OfTheModel, UnderAProfiler, compiler, quick_step

__all__ = ["compiler"]  # a fixture
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "clip": 0.5},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1, "schedule": "onecycle"},
    "sgd": {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "schedule": "cosine", "warmup": 3},
    "rmsprop": {"optimizer": "rmsprop", "momentum": 0.5, "lr": 0.001},
}


# executor -> settings, and what replaces the step that assemble has built (a cold compiler takes seconds, a recording a GPU)
EXECUTORS: dict[str, tuple[dict[str, Any], Any]] = {
    "eager": ({}, None),
    "accumulated": ({"accumulate": 2}, None),
    "half": ({"precision": "bf16"}, None),
    "scaled": ({"precision": "fp16"}, None),
    "export": ({"graph": "export", "graph_of": "model"}, None),
    "compiled": ({}, quick_step(CompiledStep)),
    "captured": ({"update": "fused"}, quick_step(DrawingOnHost)),
    "model graph": ({}, quick_step(OfTheModel)),
    "profiled": ({}, quick_step(UnderAProfiler)),
}


# torch's rmsprop has no fused update, and its others look at values unless they are on a GPU: tests/gpu/test_state.py has it.
CASES = [
    (executor, name) for executor in EXECUTORS for name in OPTIMIZERS if (executor, name) != ("captured", "rmsprop")
]


@pytest.mark.parametrize(("executor", "optimizer"), CASES)
def test_what_is_put_back_goes_on_to_the_same_bits(executor: str, optimizer: str) -> None:
    asked, prepare = EXECUTORS[executor]
    row = round_trip(spec_of(**asked, **OPTIMIZERS[optimizer]), WORLD, task(), prepare=prepare)
    assert row["moved"] and row["put back"] and row["kept"]
    assert row["equal"] and not row["different"], row["different"]
    assert not row["disturbed"], "by an evaluation in the middle of an epoch"
    assert row["iteration"] == 17


@pytest.mark.parametrize("executor", ["eager", "compiled", "captured"])
def test_a_state_from_before_the_first_step(executor: str) -> None:
    """It has none of the optimizer's moments, which a graph that was made since then holds on to."""
    asked, prepare = EXECUTORS[executor]
    row = round_trip(spec_of(**asked, optimizer="adam"), WORLD, task(), prepare=prepare, before=0)
    assert row["moved"] and row["put back"] and not row["different"], row["different"]


@pytest.mark.parametrize("before", [0, 8, 12])
def test_the_loop_goes_on_from_where_the_state_stands(before: int) -> None:
    """`train` itself, to the end of the run: at the start, in an epoch, and between the last step of an epoch and its evaluation."""
    spec = spec_of(optimizer="adam", clip=0.5, epochs=3)
    parts, progress = started(spec, WORLD, task(), None)
    stepped(parts, progress, before)
    kept = parts.state.copy_out()
    scores = train(parts, progress).plain()
    other, theirs = started(spec, WORLD, task(), None)
    other.state.put_back(kept)
    assert train(other, theirs).plain() == scores
    assert other.state.position.iteration == 18
    assert not differences(parts.state.copy_out(), other.state.copy_out())


def test_everything_that_moves_is_listed() -> None:
    """By name: parameters, buffers (a counter too), the optimizer's state, random streams, clips; and plain values beside them."""
    parts = assembled(spec_of(optimizer="adam", clip=0.5), WORLD, task())
    observe: Any = SimpleNamespace(write=lambda event: None)
    advance(parts, Progress(parts, observe), 2)
    names = set(parts.state.tensors())
    assert {"parameters/0.weight", "buffers/1.running_mean", "buffers/1.num_batches_tracked", "clips"} <= names
    assert {
        "optimizer/0.weight/exp_avg",
        "optimizer/0.weight/step",
        "random/torch",
        "random/numpy",
        "random/python",
    } <= names
    values = parts.state.values()
    assert values["position"] == {"iteration": 2, "epoch": 0, "in_epoch": 2}
    assert values["progress"]["window"]["num"] == 16 and values["optimizer"]["groups"][0]["betas"] == [0.9, 0.999]


class Remembers(torch.nn.Module):
    """Keeps what is neither a parameter nor a buffer: a counter, a list, a tensor, and an extra state that it declares to torch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(6, 4)
        self.num_calls, self.recent, self.mean, self.last = 0, [0.0], torch.zeros(6), None
        self.secret = {"passes": 0}

    def get_extra_state(self) -> dict[str, int]:
        return {"passes": self.num_calls}

    def set_extra_state(self, state: dict[str, int]) -> None:
        assert state["passes"] == self.num_calls

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.num_calls += 1
            self.recent = [*self.recent[-2:], float(x.mean())]
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
            self.last = x.mean(0)
            self.secret["passes"] += 1
        pull = 0 if self.last is None else self.last.detach() * self.secret["passes"]
        return self.layer(x + self.mean + pull) * (1 + 0.01 * self.num_calls + sum(self.recent))


def test_what_modules_keep_in_attributes_is_a_part_of_the_state() -> None:
    row = round_trip(spec_of(optimizer="adam"), WORLD, replace(task(), model=Remembers))
    assert row["moved"] and row["put back"] and not row["different"], row["different"]
    assert {"modules/attribute//mean", "modules/attribute//last"} <= set(row["names"])


class Counts(torch.optim.Optimizer):
    """Of a user: its steps are counted in an attribute, and a tensor of its own is kept in another."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})
        self.num_steps, self.norm, self.every = 0, torch.zeros(()), list(self.param_groups[0]["params"])

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.num_steps += 1
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.norm.mul_(0.9).add_(parameter.grad.norm())
                    parameter.sub_(parameter.grad * group["lr"] / self.num_steps / (1 + self.norm))


def test_what_a_users_optimizer_keeps_in_attributes_is_a_part_of_the_state() -> None:
    own = replace(task(), optimizer=lambda model, lr: Counts(model.parameters(), lr))
    row = round_trip(spec_of(optimizer="task"), WORLD, own)
    assert row["moved"] and row["put back"] and not row["different"], row["different"]
    assert "optimizer/attribute 0/norm" in row["names"]


class Late(Counts):
    """Keeps attributes that its first step makes."""

    def step(self, closure: Any = None) -> None:
        if not hasattr(self, "late"):
            self.late, self.mean = 0, torch.zeros(())
        self.late += 1
        self.mean.add_(self.late)
        super().step(closure)


@pytest.mark.parametrize("before", [0, 8])
def test_attributes_that_a_users_optimizer_makes_in_its_first_step(before: int) -> None:
    own = replace(task(), optimizer=lambda model, lr: Late(model.parameters(), lr))
    row = round_trip(spec_of(optimizer="task"), WORLD, own, before=before)
    assert row["moved"] and row["put back"] and not row["different"], row["different"]


class Log:
    """An object that no state can hold."""


@pytest.mark.parametrize(
    ("keep", "said"),
    [
        (
            lambda optimizer: optimizer.state.__setitem__("run", {"sum": 1}),
            "keeps under 'run' a state that belongs to no",
        ),
        (lambda optimizer: setattr(optimizer, "log", Log()), "keeps an attribute 'log' that is a Log: only tensors"),
        (lambda optimizer: optimizer.param_groups[0].__setitem__("log", Log()), "keeps in a group 'log' that is a Log"),
    ],
)
def test_what_cannot_be_copied_out_of_an_optimizer_is_refused(keep: Any, said: str) -> None:
    own = replace(task(), optimizer=lambda model, lr: Counts(model.parameters(), lr))
    parts = assembled(spec_of(optimizer="task"), WORLD, own)
    keep(parts.optimizer)
    with pytest.raises(RunFailed, match=said):
        parts.state.copy_out()


class Noisy(torch.utils.data.Dataset[Any]):
    """Draws at random from every stream, for each sample."""

    def __len__(self) -> int:
        return 44

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((6,), index / 44) + torch.rand(6) + random.random() + np.random.rand(), index % 4


class Shuffled(torch.utils.data.IterableDataset[Any]):
    """A stream that draws its order, and something for each sample."""

    def __len__(self) -> int:
        return 44

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        for index in torch.randperm(44).tolist():
            yield torch.full((6,), index / 44) + torch.rand(6) + random.random() + np.random.rand(), index % 4


def jittered(batch: Any, keys: torch.Tensor) -> Any:
    x, y = batch
    return x + (keys % 7).to(x.dtype)[:, None] / 7, y


DATA: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dataset": ({}, {"train_data": Noisy}),
    "stream": ({"shuffle": False}, {"train_data": Shuffled}),
    "augmented": ({}, {"augment": jittered}),
}


@pytest.mark.parametrize("kind", DATA)
def test_samples_go_on_where_they_stopped(kind: str) -> None:
    asked, data = DATA[kind]
    row = round_trip(spec_of(optimizer="adam", **asked), WORLD, replace(task(), **data))
    assert row["moved"] and row["put back"] and not row["different"], row["different"]


def test_another_models_state_is_refused() -> None:
    parts = assembled(spec_of(), WORLD, task())
    kept = parts.state.copy_out()
    del kept.tensors["parameters/0.weight"]
    with pytest.raises(
        RunFailed, match=r"has nothing for parameters/0.weight, which is torch.float32 of shape \[12, 6\]"
    ):
        parts.state.put_back(kept)


Change = Callable[[Snapshot], Any]
OTHERS: dict[str, tuple[Change, str]] = {
    "a parameter more": (
        lambda s: s.tensors.update({"parameters/5.weight": torch.zeros(2)}),
        "has parameters/5.weight, which",
    ),
    "no progress": (lambda s: s.values.pop("progress"), "has nothing for progress, which this run has"),
    "another part": (lambda s: s.values.update({"accelerate": {}}), "has accelerate, which this run has not"),
    "a scalar": (
        lambda s: s.tensors.update({"optimizer/0.weight/exp_avg": torch.zeros(())}),
        r"of shape \[\] for optimizer/0.weight",
    ),
    "another layer's": (
        lambda s: s.tensors.update({"optimizer/9.weight/step": torch.zeros(())}),
        "9.weight/step, which belongs to",
    ),
    "another class's": (
        lambda s: s.values["optimizer"]["attributes"].update({"attribute 0/count": 1}),
        "attribute 0/count, which belongs to",
    ),
    "groups": (
        lambda s: s.values["optimizer"]["groups"].append({}),
        "has 2 groups of parameters for an optimizer that has 1",
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_state_that_does_not_fit_changes_nothing(other: str) -> None:
    parts, progress = started(spec_of(optimizer="adam"), WORLD, task(), None)
    advance(parts, progress, 2)
    kept = parts.state.copy_out()
    advance(parts, progress, 1)
    before = parts.state.digest()
    change, said = OTHERS[other]
    change(kept)
    with pytest.raises(RunFailed, match=said):
        parts.state.put_back(kept)
    assert parts.state.digest() == before
