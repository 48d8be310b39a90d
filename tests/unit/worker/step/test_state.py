"""A state that is copied out and put back goes on to the same bits, for every executor and optimizer: nothing is missing from it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from made_step import WORLD
from paceline.base.errors import RunFailed
from paceline.worker.progress import Progress
from paceline.worker.step.compiled import CompiledStep
from round_trip import advance, assembled, round_trip, spec_of, task
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
    assert row["moved"] and row["put back"]
    assert row["equal"] and not row["different"], row["different"]
    assert row["iteration"] == 17


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


def test_a_state_goes_into_a_run_that_has_made_no_step() -> None:
    """As a resumed run will have it: the optimizer's state is made, not only filled."""
    spec = spec_of(optimizer="adam")
    one, other = assembled(spec, WORLD, task()), assembled(spec, WORLD, task())
    observe: Any = SimpleNamespace(write=lambda event: None)
    progress = Progress(one, observe)
    advance(one, progress, 8)
    kept = one.state.copy_out()
    advance(one, progress, 9)
    straight = one.state.digest()
    theirs = Progress(other, observe)
    other.state.put_back(kept)
    advance(other, theirs, 9)
    assert other.state.digest() == straight


def test_another_models_state_is_refused() -> None:
    parts = assembled(spec_of(), WORLD, task())
    kept = parts.state.copy_out()
    del kept.tensors["parameters/0.weight"]
    with pytest.raises(
        RunFailed, match=r"has nothing for parameters/0.weight, which is torch.float32 of shape \[12, 6\]"
    ):
        parts.state.put_back(kept)
