"""A task's own optimizer: its groups keep their multiples of the rate, a graph of the step computes what its `step()` computes, and what
cannot be one is a sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo

from made_step import WORLD
from paceline.base.errors import BadInput, RunFailed
from paceline.commands.prepare import prepare
from paceline.worker.optim.own import build_own
from paceline.worker.step.compiled import CompiledStep
from round_trip import network, round_trip, spec_of, task
from unit_step import compiler, quick_step

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
__all__ = ["compiler"]  # a fixture


class Bounded(torch.optim.Optimizer):
    """Made of tensor operations alone; one of them puts another tensor in place of its state."""

    def __init__(self, groups: Any, lr: float) -> None:
        super().__init__(groups, {"lr": lr, "beta": 0.9})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                mean = state.get("mean", torch.zeros_like(parameter))
                state["mean"] = mean * group["beta"] + parameter.grad * (1 - group["beta"])
                parameter.sub_(state["mean"] / (1 + state["mean"].abs()) * group["lr"])


class Counting(Bounded):
    """Keeps a number of its own, which a graph would hold for ever."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["num"] = group.get("num", 0) + 1
        super().step()


def groups(model: torch.nn.Module, lr: float) -> list[dict[str, Any]]:
    first, *rest = list(model.parameters())
    return [{"params": [first]}, {"params": rest, "lr": lr / 4}]


BUILDERS: dict[str, Any] = {
    "bounded": lambda model, lr: Bounded(groups(model, lr), lr),
    "adamw": lambda model, lr: torch.optim.AdamW(groups(model, lr), lr=lr, weight_decay=0.1),
    "sgd": lambda model, lr: torch.optim.SGD(groups(model, lr), lr=lr, momentum=0.9),
}


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("name", BUILDERS)
def test_a_graph_of_the_step_computes_what_the_optimizer_does(name: str, schedule: str) -> None:
    own = task(optimizer=BUILDERS[name])
    spec = spec_of(optimizer="task", schedule=schedule, precision="fp64")
    eager = round_trip(spec, WORLD, own)
    graph = round_trip(spec, WORLD, own, prepare=quick_step(CompiledStep))
    for row in (eager, graph):
        assert row["equal"] and row["moved"] and not row["different"], row["different"]
    assert graph["step"]["graph_of"] == "step"
    for one, other in zip(eager["weights"], graph["weights"], strict=True):
        assert float((one - other).norm() / other.norm().clamp(min=1e-30)) < 1e-10


def test_a_number_of_its_own_is_no_part_of_a_graph() -> None:
    own = task(optimizer=lambda model, lr: Counting(model.parameters(), lr))
    round_trip(spec_of(optimizer="task"), WORLD, own)  # eagerly it is fine
    with pytest.raises(RunFailed, match=r"Counting.step\(\) keeps group\['num'\] outside of tensors") as caught:
        round_trip(spec_of(optimizer="task"), WORLD, own, prepare=quick_step(CompiledStep))
    assert caught.value.kind == "mismatch"


@pytest.mark.parametrize(
    ("builder", "said"),
    [
        (lambda model, lr: model, r"optimizer\(model, lr\) returned a Sequential, not a torch.optim.Optimizer"),
        (lambda model, lr: torch.optim.SGD(list(model.parameters())[:2], lr=lr), "updates not 5 of the model's"),
        (lambda model, lr: torch.optim.SGD([*model.parameters(), torch.zeros(1)], lr=lr), "updates 1 that are not the model's"),
        (lambda model, lr: 1 / 0, "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_what_is_no_optimizer_of_the_model_is_a_sentence(builder: Any, said: str) -> None:
    with pytest.raises(RunFailed, match=said) as caught:
        build_own(task(optimizer=builder), network(), 0.1)
    assert caught.value.kind == "task"


def test_a_task_without_one_is_refused_before_anything_runs() -> None:
    with pytest.raises(BadInput, match=r"optimizer=task, but the task builds none: define optimizer\(model, lr\)"):
        prepare("features", {}).spec({"optimizer": "task"})
