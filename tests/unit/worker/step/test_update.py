"""Clipping and loss scaling: against torch's own clip, and by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo  # the first optimizer would: it sets an environment variable, and a test must not

from made_step import step_parts
from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.optim.scale import LossScale
from paceline.worker.optim.schedule import Rate
from paceline.worker.step.update import Update


def made(*, clip: float | None = None, scale: LossScale | None = None) -> tuple[torch.nn.Linear, Update]:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    spec = Spec(task="features", clip=clip)
    parts = step_parts(model, spec, optimizer=optimizer, schedule=lambda i: Rate(0.1 / (i + 1)), scale=scale)
    return model, parts.update


def backward(model: torch.nn.Linear, update: Update, *, times: float = 1.0) -> None:
    update.begin()
    update.scaled(model(torch.arange(8.0).view(2, 4)).pow(2).sum() * times).backward()


def test_rates_of_the_schedule_are_those_of_the_updates() -> None:
    model, update = made()
    assert update.rates.lr == 0.1, "before the first one, the first one's"
    for _ in range(3):
        backward(model, update)
        update()
    assert update.rates.lr == pytest.approx(0.1 / 3)
    assert update.optimizer.param_groups[0]["lr"] == update.rates.lr


def test_a_long_gradient_is_cut_as_torch_cuts_it() -> None:
    (model, update), (twin, _) = made(clip=0.5), made()
    backward(model, update)
    twin(torch.arange(8.0).view(2, 4)).pow(2).sum().backward()
    norm = torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
    update()
    torch.optim.SGD(twin.parameters(), lr=0.1).step()
    assert model.weight.equal(twin.weight) and model.bias.equal(twin.bias)
    assert update.read_back()["clip"] == {"at": 0.5, "steps": 1, "longest": pytest.approx(float(norm))}


def test_a_short_gradient_is_left_alone() -> None:
    (model, update), (twin, plain) = made(clip=1e9), made()
    for net, step in ((model, update), (twin, plain)):
        backward(net, step)
        step()
    assert model.weight.equal(twin.weight)
    assert update.read_back()["clip"]["steps"] == 0


def test_scaled_is_not_another_update() -> None:
    (model, update), (twin, plain) = made(scale=LossScale(), clip=2.0), made(clip=2.0)
    for net, step in ((model, update), (twin, plain)):
        backward(net, step)
        step()
    assert torch.allclose(model.weight, twin.weight, rtol=1e-6)
    assert update.read_back()["clip"]["longest"] == pytest.approx(plain.read_back()["clip"]["longest"], rel=1e-6)
    assert update.read_back()["scaler"] == {"scale": 65536.0, "skipped_steps": 0, "steps": 1}


def test_an_overflow_is_left_out_and_counted() -> None:
    model, update = made(scale=LossScale())
    before = model.weight.detach().clone()
    backward(model, update, times=1e38)
    update()
    assert model.weight.equal(before)
    assert update.read_back()["scaler"] == {"scale": 32768.0, "skipped_steps": 1, "steps": 1}
    update.check()
    backward(model, update)
    update()
    assert not model.weight.equal(before)


def test_a_model_that_never_fits_ends_the_run() -> None:
    model, update = made(scale=LossScale())
    for _ in range(20):
        backward(model, update, times=float("inf"))
        update()
    with pytest.raises(RunFailed, match=r"20 updates in a row were left out .* use bf16 or fp32") as caught:
        update.check()
    assert caught.value.kind == "nonfinite"


def test_the_scale_grows_after_many_good_steps() -> None:
    scale = LossScale()
    one: Any = torch.tensor(1.0)
    for _ in range(2000):
        assert scale.accepts(one)
    assert scale.value == 131072.0
