"""`kernel=fused`: which convolutions are taken, that names and parameters stay, and the sentence where nothing fits."""

from __future__ import annotations

import contextlib
import re
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from paceline.base.errors import RunFailed
from paceline.worker.tasks.cifar import CifarCNN
from paceline.worker.tasks.conv_stack import ConvStack
from paceline.worker.tasks.mnist import ConvNet, LeNet, mnist
from paceline.worker.transform.kernel import FusedConv2d, fuse, read_back


def conv(before: int = 1, after: int = 2, **how: Any) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, **{"padding": 1, **how})


def test_names_and_parameters_stay() -> None:
    model = ConvNet().model()
    before, names = dict(model.named_parameters()), list(model.state_dict())
    fused = fuse(model)
    assert read_back(model) == {"kernel": "fused", "fused": {"layers": 2, "of": 2}}
    assert list(model.state_dict()) == names
    assert all(value is before[name] for name, value in model.named_parameters())
    assert [type(module).__name__ for module in model.children()][:6] == ["FusedConv2d", "Identity", "Identity"] * 2
    assert [model.get_submodule(name).inner for name in ("conv1", "conv2")] == [True, False], "a linear layer follows"
    with fused.plainly():
        assert read_back(model) == {"kernel": "torch"}
    assert isinstance(model.get_submodule("conv1"), FusedConv2d)


@pytest.mark.parametrize(
    "layers",
    [
        [conv(), nn.ReLU(inplace=True), nn.MaxPool2d(2)],
        [conv(padding="same"), nn.ReLU(), nn.MaxPool2d((2, 2), stride=2)],
        [conv(bias=False), nn.ReLU(), nn.MaxPool2d(3)],
        [conv(), nn.ReLU(), nn.MaxPool2d(2, ceil_mode=True)],
        [nn.Sequential(conv(), nn.ReLU()), nn.MaxPool2d(2)],
    ],
)
def test_what_fits_computes_the_same(layers: list[nn.Module]) -> None:
    """A pooling of another kind is left to torch."""
    model = nn.Sequential(*layers)
    x = torch.randn(3, 1, 9, 8)
    wanted = model(x)
    fuse(model).prove(lambda: model(x), lambda: model(x).square().sum(), contextlib.nullcontext)
    torch.testing.assert_close(model(x), wanted, rtol=1e-5, atol=1e-6)
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


class Alone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = conv()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x))


def _hooked() -> nn.Module:
    layer = conv()
    layer.register_forward_hook(lambda *_: None)
    return layer


def _twice() -> nn.Module:
    layer = conv(2, 2)
    return nn.Sequential(nn.Sequential(layer, nn.ReLU()), nn.Sequential(layer, nn.Tanh()))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (LeNet().model(), "no convolution that our kernel computes .*, of 3: conv1 is 5x5; use kernel=torch"),
        (CifarCNN().model(), "is followed by BatchNorm2d, not by ReLU"),
        (nn.Linear(2, 2), "has no convolution .nn.Conv2d"),
        (Alone(), "conv stands in no nn.Sequential"),
        (nn.Sequential(conv()), "0 is followed by nothing, not by ReLU"),
        (nn.Sequential(conv(stride=2), nn.ReLU()), r"0 has stride \(2, 2\)"),
        (nn.Sequential(conv(2, 2, groups=2), nn.ReLU()), "0 has groups 2"),
        (nn.Sequential(conv(padding_mode="circular"), nn.ReLU()), "0 has padding .*circular"),
        (nn.Sequential(_hooked(), nn.ReLU()), "0 has hooks"),
        (_twice(), "0.0 is followed by Tanh"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(model: nn.Module, why: str) -> None:
    names = list(model.state_dict())
    with pytest.raises(RunFailed) as failed:
        fuse(model)
    assert re.search(why, str(failed.value)), failed.value
    assert list(model.state_dict()) == names and read_back(model) == {"kernel": "torch"}


def test_a_layer_that_is_used_again_is_one_layer() -> None:
    model = ConvStack(layers=3, shared=True, channels=4).model()
    fuse(model)
    assert read_back(model)["fused"] == {"layers": 2, "of": 2}
    layer = conv(2, 2)
    again = nn.Sequential(OrderedDict(one=layer, a=nn.ReLU(), two=layer, b=nn.ReLU()))
    fuse(again)
    assert again.get_submodule("one") is again.get_submodule("two")


def test_a_task_that_calls_single_layers_is_found() -> None:
    model = nn.Sequential(conv(), nn.ReLU())
    fused = fuse(model)
    x = torch.randn(2, 1, 4, 4)
    aside = contextlib.nullcontext

    def loss() -> Tensor:
        return model(x).square().sum()

    other = "gives other outputs or gradients than with torch's layers: the task calls single layers"
    with pytest.raises(RunFailed, match=other):
        fused.prove(lambda: model[0](x), loss, aside)
    assert model.training and read_back(model)["kernel"] == "fused"
    fused.prove(lambda: {"all": [model(x)]}, loss, aside)
    # in its loss, in training alone, or in outputs that nobody can look into
    with pytest.raises(RunFailed, match=other):
        fused.prove(object, lambda: model[0](x).square().sum(), aside)
    with pytest.raises(RunFailed, match=other):
        fused.prove(lambda: model(x), lambda: (model[0](x) if model.training else model(x)).square().sum(), aside)


def test_a_proof_leaves_no_trace_and_lets_a_model_draw() -> None:
    model = nn.Sequential(conv(1, 2), nn.ReLU(), nn.BatchNorm2d(2), nn.Dropout(0.5))
    x, before = torch.randn(2, 1, 4, 4), {name: value.clone() for name, value in model.state_dict().items()}
    fused = fuse(model)
    drawn = torch.get_rng_state()
    fused.prove(
        lambda: model(x) + torch.randn(()), lambda: model(x).square().sum(), lambda: torch.random.fork_rng(devices=[])
    )
    assert torch.equal(torch.get_rng_state(), drawn)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_under_autocast_it_computes_in_the_half_format() -> None:
    model = nn.Sequential(conv(), nn.ReLU())
    fuse(model)
    x = torch.randn(4, 1, 6, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert {parameter.grad.dtype for parameter in model.parameters() if parameter.grad is not None} == {torch.float32}


def test_the_compiler_takes_it() -> None:
    model = nn.Sequential(conv(), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
    fuse(model)
    x = torch.randn(3, 1, 4, 4)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    compiled(x).square().sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for a, b in zip(found, [parameter.grad for parameter in model.parameters()], strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_twenty_steps_train_the_same_weights(dtype: torch.dtype, near: float) -> None:
    images, labels = mnist(None, "train")
    weights: list[dict[str, Tensor]] = []
    for ours in (False, True):
        torch.manual_seed(3)
        model = ConvNet().model().to(dtype)
        if ours:
            fuse(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for step in range(20):
            some = slice(32 * step, 32 * step + 32)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[some].to(dtype)), labels[some]).backward()
            optimizer.step()
        weights.append(model.state_dict())
    for name, value in weights[0].items():
        assert ((weights[1][name] - value).norm() / value.norm()).item() < near, name
