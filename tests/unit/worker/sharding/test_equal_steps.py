"""Whether every rank can keep step, from the sizes alone; a rank without a sample is in test_accelerated.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.sharding.equal_steps import check_equal_steps
from paceline.worker.world.join import World


def ask(num: int, size: int, **words: Any) -> None:
    world = World(rank=0, size=size, local_rank=0, host="here", device=torch.device("cpu"), backend="gloo")
    check_equal_steps(num, Spec(task="features", on=f"1x{size}", **words), world)


@pytest.mark.parametrize(
    ("num", "size", "accumulate", "steps", "fits"),
    [
        (64, 2, 4, None, True),
        (71, 2, 4, None, False),  # the last batch has 7: 4 and 3 micro-batches
        (72, 2, 4, None, True),  # 4 and 4
        (68, 2, 4, None, True),  # 2 samples each: 2 and 2
        (71, 2, 4, 2, True),  # ends before the short batch
        (71, 2, 1, None, True),
        (71, 1, 4, None, True),
    ],
)
@pytest.mark.parametrize("sharding", ["fsdp", "embedding", "ddp"])
def test_ranks_that_meet_in_the_model_come_equally_often(
    sharding: str, num: int, size: int, accumulate: int, steps: int | None, fits: bool
) -> None:
    words: dict[str, Any] = {
        "sharding": sharding,
        "batch": 32,
        "accumulate": accumulate,
        "steps": steps,
        "epochs": None if steps else 1,
    }
    if fits or sharding == "ddp":
        ask(num, size, **words)
        return
    with pytest.raises(
        RunFailed, match=f"sharding={sharding} accumulate=4: a batch of 7 of the 71 samples makes 4 .* and 3 on rank 1"
    ):
        ask(num, size, **words)


@pytest.mark.parametrize("sharding", ["none", "tensor"])
def test_others_may_have_nothing_to_do(sharding: str) -> None:
    ask(65, 2, sharding=sharding, batch=32)


@pytest.mark.parametrize(("every", "steps", "longest"), [(3, None, None), (4, None, 3), (3, 2, 2), (3, 5, None)])
def test_ranks_never_stay_apart_longer_than_an_epoch(every: int, steps: int | None, longest: int | None) -> None:
    """65 samples in batches of 32 are 3 steps."""
    words: dict[str, Any] = {"sync_every": every, "batch": 32, "steps": steps, "epochs": None if steps else 9}
    if longest is None:
        ask(65, 2, **words)
        return
    with pytest.raises(RunFailed, match=f"only {longest} steps before an evaluation.*use sync_every={longest} or less"):
        ask(65, 2, **words)
