"""Report E's stack: as many layers as asked, or one layer that many times, whose weights are then there once."""

from __future__ import annotations

import re

import pytest
import torch

from paceline.base.errors import BadInput
from paceline.worker.tasks.conv_stack import ConvStack

HEAD = 16 * 49 * 10 + 10
FIRST, LAYER = 16 * 9 + 16, 16 * 16 * 9 + 16


@pytest.mark.parametrize(
    ("given", "num_parameters", "num_units"),
    [
        ({}, FIRST + 2 * LAYER + HEAD, 2),
        ({"layers": 10}, FIRST + 10 * LAYER + HEAD, 10),
        ({"layers": 10, "shared": True}, FIRST + LAYER + HEAD, 1),
        ({"channels": 4}, 4 * 10 + 2 * (4 * 4 * 9 + 4) + 4 * 49 * 10 + 10, 2),
    ],
)
def test_sizes(given: dict, num_parameters: int, num_units: int) -> None:
    task = ConvStack(**given)
    model = task.model()
    assert sum(parameter.numel() for parameter in model.parameters()) == num_parameters
    assert model(torch.zeros(3, 1, 28, 28)).shape == (3, 10)
    assert len(task.units(model)) == num_units
    assert len(model.state_dict()) == len(list(model.parameters()))  # no tensor under two names


def test_a_shared_layer_is_applied_as_often_as_asked() -> None:
    torch.manual_seed(0)
    task = ConvStack(layers=5, shared=True)
    model = task.model()
    calls: list[int] = []
    task.units(model)[0].register_forward_hook(lambda *_: calls.append(1))
    model(torch.zeros(1, 1, 28, 28))
    assert len(calls) == 5


def gradient(model: torch.nn.Module, name: str) -> torch.Tensor:
    found = model.get_parameter(name).grad
    assert found is not None
    return found


def test_shared_is_a_stack_of_equal_layers() -> None:
    torch.manual_seed(0)
    shared, apart = ConvStack(layers=3, shared=True).model(), ConvStack(layers=3).model()
    own = shared.state_dict()
    apart.load_state_dict({name: own[re.sub(r"layers\.\d", "layers.0", name)] for name in apart.state_dict()})
    x = torch.randn(2, 1, 28, 28)
    assert torch.equal(shared(x), apart(x))
    shared(x).sum().backward()
    apart(x).sum().backward()
    wanted = torch.stack([gradient(apart, f"layers.{number}.conv.weight") for number in range(3)]).sum(dim=0)
    assert torch.allclose(gradient(shared, "layers.0.conv.weight"), wanted, atol=1e-5)


def test_data_is_mnist() -> None:
    x, y = ConvStack().test_data()
    assert x.shape == (2_000, 1, 28, 28) and len(y) == 2_000


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(BadInput) as caught:
        ConvStack(layers=0, channels=-1)
    assert caught.value.problems == ["layers=0: must be at least 1", "channels=-1: must be at least 1"]
