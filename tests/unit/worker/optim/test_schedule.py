"""Our closed forms against torch's own schedulers, step by step; warm-up and scaling against arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo  # the first optimizer would: it sets an environment variable, and a test must not
from torch.optim import lr_scheduler

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.optim.build import build, way
from paceline.worker.optim.rates import Rates
from paceline.worker.optim.schedule import Length, Rate, length, rate, schedule, top_lr

STEPS, EACH, LR = 40, 8, 0.5
RUN = Length(STEPS, EACH)


def spec(**more: Any) -> Spec:
    return Spec(task="features", threads=1, device="cpu", update="single", **{"lr": LR, "weight_decay": 0.0, **more})


def parameters() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(3))]


def torchs(make: Callable[[Any], Any], *, every: int) -> list[tuple[float, float]]:
    """(rate, first beta) of every step, as torch's scheduler has them."""
    found: list[tuple[float, float]] = []
    update = torch.optim.Adam(parameters(), lr=LR)
    torchs_own = make(update)
    for step in range(STEPS):
        group = update.param_groups[0]
        found.append((group["lr"], group["betas"][0]))
        update.step()
        if (step + 1) % every == 0:
            torchs_own.step()
    return found


CASES: dict[str, tuple[dict[str, Any], Callable[[Any], Any], int]] = {
    "step": (
        {"schedule": "step", "schedule_every": 2, "schedule_factor": 0.5},
        lambda o: lr_scheduler.StepLR(o, step_size=2, gamma=0.5),
        EACH,
    ),
    "exponential": (
        {"schedule": "exponential", "schedule_factor": 0.7},
        lambda o: lr_scheduler.ExponentialLR(o, gamma=0.7),
        EACH,
    ),
    "cosine": ({"schedule": "cosine"}, lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=STEPS), 1),
    "onecycle": ({"schedule": "onecycle"}, lambda o: lr_scheduler.OneCycleLR(o, max_lr=LR, total_steps=STEPS), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_torchs(name: str) -> None:
    words, make, every = CASES[name]
    ours = [rate(spec(**words), RUN, step) for step in range(STEPS)]
    assert [r.lr for r in ours] == pytest.approx([lr for lr, _ in torchs(make, every=every)], rel=1e-9)


def test_onecycle_moves_the_first_beta_as_torch_does() -> None:
    _, make, _ = CASES["onecycle"]
    ours = [rate(spec(schedule="onecycle"), RUN, step).beta for step in range(STEPS)]
    assert ours == pytest.approx([beta for _, beta in torchs(make, every=1)], rel=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_cycle_of_few_steps_has_rates(steps: int) -> None:
    found = [rate(spec(schedule="onecycle"), Length(steps, 1), step).lr for step in range(steps + 2)]
    assert all(0 < lr <= LR for lr in found)


def test_warm_up_rises_to_the_rate_and_the_schedule_goes_on_from_there() -> None:
    words = spec(schedule="cosine", warmup=4)
    found = [rate(words, RUN, step).lr for step in range(STEPS)]
    assert found[:4] == pytest.approx([LR / 4, LR / 2, LR * 3 / 4, LR])
    assert found[4] == LR
    assert found[-1] == pytest.approx(LR * (1 + math.cos(math.pi * 35 / 36)) / 2)
    assert [rate(spec(warmup=2), RUN, step).lr for step in (0, 1, 2, 30)] == [LR / 2, LR, LR, LR]


def test_a_warm_up_over_epochs_meets_the_schedule_where_it_is() -> None:
    words = spec(schedule="exponential", schedule_factor=0.1, warmup=2 * EACH)
    found = [rate(words, RUN, step).lr for step in range(3 * EACH)]
    assert found[EACH - 1] == pytest.approx(LR / 2)
    assert found[2 * EACH - 1] == pytest.approx(LR * 0.1), "the end of the warm-up, in the second epoch"
    assert found[2 * EACH] == pytest.approx(LR * 0.01)


def test_a_warm_up_longer_than_the_run_is_refused() -> None:
    with pytest.raises(RunFailed, match=r"warmup=40, but the whole run has 40 steps"):
        schedule(spec(warmup=STEPS), RUN)
    assert schedule(spec(warmup=STEPS - 1), RUN)(0).lr == LR / (STEPS - 1)
    still = schedule(spec(), RUN)
    assert still(0) is still(STEPS), "nothing moves, nothing is computed"


def test_decay_by_epochs() -> None:
    assert [rate(spec(lr_decay=1.0), RUN, step).lr for step in (0, EACH - 1, EACH, 2 * EACH)] == [
        LR,
        LR,
        LR / 2,
        LR / 3,
    ]


def test_the_batch_scales_the_rate_only_when_asked() -> None:
    assert top_lr(spec(batch=128)) == LR
    assert top_lr(spec(batch=128, lr_scale="linear")) == 4 * LR
    assert top_lr(spec(batch=128, lr_scale="sqrt", lr_batch=512)) == LR / 2


def test_a_run_is_as_long_as_it_will_be() -> None:
    assert length(spec(batch=32, epochs=3), 100) == Length(12, 4)
    assert length(spec(batch=32, epochs=None, steps=7), 100) == Length(7, 4)


WAYS = [
    (o, w) for o in ("adam", "adamw", "sgd", "rmsprop") for w in ("foreach", "fused") if (o, w) != ("rmsprop", "fused")
]


@pytest.mark.parametrize(("optimizer", "update"), WAYS)
def test_ways_to_update_are_read_back_and_agree(optimizer: str, update: str) -> None:
    ends: list[torch.Tensor] = []
    for name in ("single", update):
        (weight,) = one = parameters()
        made = build(
            one,
            spec(optimizer=optimizer, momentum=0.9 if optimizer in ("sgd", "rmsprop") else 0.0).model_copy(
                update={"update": name}
            ),
        )
        assert way(made) == name
        for _ in range(3):
            weight.grad = weight.detach() * 2
            made.step()
        ends.append(weight.detach())
    assert torch.allclose(ends[0], ends[1], rtol=1e-6, atol=1e-7)


def test_a_rate_is_put_into_every_group_and_a_tensor_is_filled() -> None:
    made = build(parameters(), spec())
    top = made.param_groups[0]["lr"]
    held = torch.tensor(top / 2)
    made.add_param_group({"params": parameters(), "lr": held})
    Rates(made, lambda _: Rate(0.25, 0.8), top).set(0)
    assert [float(group["lr"]) for group in made.param_groups] == [0.25, 0.125], "a group keeps its multiple"
    assert made.param_groups[1]["lr"] is held
    assert made.param_groups[0]["betas"] == (0.8, 0.999)
    plain = build(parameters(), spec(optimizer="sgd", momentum=0.5))
    Rates(plain, lambda _: Rate(0.25, 0.8), plain.param_groups[0]["lr"]).set(0)
    assert plain.param_groups[0]["momentum"] == 0.5, "that is a setting, and stays as asked"
