"""What FSDP would do wrongly, or say in its own words; the trainings are in tests/dist/test_sharding.py."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributed.fsdp import fully_shard

from paceline.base.errors import RunFailed
from paceline.worker.sharding import fsdp
from paceline.worker.world.join import World


def halves(flags: list[float], *, takes_unused: bool) -> fsdp.Fsdp:
    """Of two ranks, as `reduce` sees it: how many of them used each parameter."""
    made = object.__new__(fsdp.Fsdp)
    made.world = World(rank=0, size=2, local_rank=0, host="here", device=torch.device("cpu"), backend="gloo")
    made._parameters = [torch.nn.Parameter(torch.ones(2)) for _ in flags]
    for parameter in made._parameters:
        parameter.grad = torch.ones(2)
    made._takes_unused = takes_unused
    made._used = type("Used", (), {"take": lambda _: flags})()  # pyright: ignore[reportAttributeAccessIssue]
    return made


def test_a_torch_that_leaves_gradients_out_does_not_train_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: Any = lambda tensor, world: tensor  # noqa: E731
    monkeypatch.setattr(fsdp, "all_reduce_", alone)
    with pytest.raises(
        RunFailed, match=r"some ranks used a layer in this step that others did not.*torch 2.13 or newer"
    ) as said:
        halves([2.0, 1.0], takes_unused=False).reduce(4)
    assert said.value.kind == "mismatch"
    for flags, takes_unused in (([2.0, 1.0], True), ([2.0, 0.0], False)):
        made = halves(flags, takes_unused=takes_unused)
        made.reduce(4)
        assert [len(made.gradients()), *made.gradients()[0].tolist()] == [1 + bool(flags[1]), 0.25, 0.25]


def test_fsdps_own_errors_are_not_the_tasks() -> None:
    with (
        pytest.raises(RunFailed, match=r"torch's FSDP cannot train this model \(\w+: .*use sharding=none") as said,
        fsdp.fsdps_words(),
    ):
        fully_shard(torch.nn.ModuleList())
    assert said.value.kind == "mismatch"
    with pytest.raises(RunFailed, match=r"without calling that unit.*units\(model\)"), fsdp.fsdps_words():
        raise RuntimeError("aten.addmm.default got mixed torch.Tensor and DTensor")
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), fsdp.fsdps_words():
        torch.nn.Linear(2, 2)(torch.ones(1, 3))
