"""Every rank checks what it got against the spec, and says the difference in one sentence."""

from __future__ import annotations

import pytest

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.assemble import check
from paceline.worker.world.env import Identity, identify
from paceline.worker.world.join import check_identity

SPEC = Spec(task="features", on="1x2", threads=2, device="cpu", weight_decay=0.0)
GOT = {
    "world_size": 2,
    "backend": "gloo",
    "device": "cpu",
    "threads": 2,
    "precision": "fp32",
    "optimizer": {"class": "Adam", "lr": 1e-3},
}


def test_as_asked() -> None:
    check(SPEC, GOT)
    check_identity(Identity(1, 2, 1, "torchrun", "host"), SPEC)


@pytest.mark.parametrize(
    ("name", "value"),
    [("world_size", 1), ("backend", "mpi"), ("device", "cuda"), ("threads", 1), ("precision", "fp16")],
)
def test_each_difference_fails_the_run(name: str, value: object) -> None:
    with pytest.raises(RunFailed, match=f"asked for {name} .*, got {value}") as caught:
        check(SPEC, {**GOT, name: value})
    assert caught.value.kind == "mismatch"


def test_an_optimizer_with_another_learning_rate_fails_the_run() -> None:
    with pytest.raises(RunFailed, match=r"asked for lr 0\.001, got 0\.1"):
        check(SPEC, {**GOT, "optimizer": {"class": "Adam", "lr": 0.1}})


def test_another_optimizer_fails_the_run() -> None:
    with pytest.raises(RunFailed, match="asked for optimizer adam, got SGD"):
        check(SPEC, {**GOT, "optimizer": {"class": "SGD", "lr": 1e-3}})


def test_a_launcher_that_starts_too_few_is_caught_before_the_first_message() -> None:
    with pytest.raises(RunFailed, match=r"asked for 2 processes \(on=1x2\), but torchrun started a world of 1"):
        check_identity(Identity(0, 1, 0, "torchrun", "host"), SPEC)


def test_dialects() -> None:
    torchrun = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
    ours = {"PACELINE_RANK": "0", "PACELINE_WORLD_SIZE": "2", "PACELINE_LOCAL_RANK": "0"}
    assert identify(torchrun).dialect == "torchrun" and identify(torchrun).rank == 3
    assert identify({**torchrun, **ours}).dialect == "local", "our own words win over what we inherited"
    with pytest.raises(RunFailed, match="no launcher variables"):
        identify({})
    with pytest.raises(RunFailed, match="not numbers"):
        identify({**torchrun, "RANK": "one"})
