"""A batch and outputs in containers of the user's own go through every kind of step, in a half format too, and come to the loss as what
they were."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn import functional

from made_step import step_parts, task_of
from paceline.spec.run import Spec
from paceline.worker.measure.compiles import Compiles
from paceline.worker.measure.tally import Tally
from paceline.worker.step.compiled import CompiledStep
from paceline.worker.step.eager import EagerStep
from paceline.worker.step.input import StepInput
from paceline.worker.step.model_graph import ModelGraphStep
from unit_step import Warm, compiler

__all__ = ["compiler"]


@dataclass
class Sample:
    x: torch.Tensor
    y: torch.Tensor
    split: str = "train"


class Net(torch.nn.Module):
    def __init__(self, container: Any) -> None:
        super().__init__()
        self.layer, self.container = torch.nn.Linear(8, 5), container

    def forward(self, x: torch.Tensor) -> Any:
        return self.container(logits=self.layer(x))


def _output() -> Any:
    """As every model of transformers returns it."""
    return pytest.importorskip("transformers.modeling_outputs").SequenceClassifierOutput


def trained(kind: str, container: Any, batch_of: Any, precision: str) -> dict[str, torch.Tensor]:
    def loss(outputs: Any, batch: Any) -> Any:
        if container is not dict:
            assert type(outputs) is container, type(outputs)
        logits = outputs["logits"] if container is dict else outputs.logits
        target = batch.y if isinstance(batch, Sample) else batch["y"]
        return functional.cross_entropy(logits, target)

    torch.manual_seed(3)
    model = Net(container)
    if precision == "fp64":
        model.double()

    def forward(model: torch.nn.Module, batch: Any) -> Any:
        return model(batch.x if isinstance(batch, Sample) else batch["x"])

    task = task_of(model, forward=forward, loss=loss, score=lambda outputs, batch: {})
    given: dict[str, Any] = {"task": "features", "threads": 1, "device": "cpu", "precision": precision, "lr": 0.01}
    spec = Spec(
        **given, weight_decay=0.0, steps=4, batch=16, optimizer="sgd", update="foreach" if kind == "step" else "single"
    )
    parts = step_parts(model, spec, task=task)
    step: Any = EagerStep(parts)
    if kind == "step":
        step = CompiledStep(parts, Compiles(parts.watch), Warm())
    elif kind == "compile":
        step = ModelGraphStep(parts, Compiles(parts.watch), Warm())
    model.train()
    for index in range(4):
        generator = torch.Generator().manual_seed(index)
        x = torch.randn(16, 8, generator=generator, dtype=torch.float64 if precision == "fp64" else torch.float32)
        y = torch.randint(0, 5, (16,), generator=generator)
        step(StepInput(iter([(batch_of(x=x, y=y), 16, True)])), Tally())
    return {name: value.detach().double().clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("kind", ["compile", "step"])
@pytest.mark.parametrize(
    ("container", "batch_of", "precision"),
    [
        (_output, dict, "fp64"), (_output, UserDict, "bf16"), (None, Sample, "fp64"), (None, UserDict, "bf16"),
    ],
)  # fmt: skip
def test_a_graph_gives_the_loss_what_the_model_returned(
    kind: str, container: Any, batch_of: Any, precision: str
) -> None:
    container = dict if container is None else container()
    graph, plain = (trained(each, container, batch_of, precision) for each in (kind, "eager"))
    for name, value in graph.items():
        assert float((value - plain[name]).norm() / plain[name].norm()) < (1e-10 if precision == "fp64" else 1e-3), name
