"""Every rank checks what it got against the spec, and says the difference in one sentence."""

from __future__ import annotations

import pytest

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.applied import check
from paceline.worker.world.env import Identity, identify
from paceline.worker.world.join import check_identity

SPEC = Spec(task="features", on="1x2", threads=2, device="cpu", weight_decay=0.0)
GOT = {
    "world_size": 2,
    "backend": "gloo",
    "device": "cpu",
    "threads": 2,
    "precision": "fp32",
    "sharding": "none",
    "buffers": "mean",
    "remat": "none",
    "kernel": "torch",
    "messages": SPEC.messages,
    "optimizer": {"class": "Adam", "lr": 1e-3},
}


def test_as_asked() -> None:
    check(SPEC, GOT)
    check_identity(Identity(1, 2, 1, "torchrun", "host"), SPEC)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("world_size", 1),
        ("backend", "mpi"),
        ("device", "cuda"),
        ("threads", 1),
        ("precision", "fp16"),
        ("kernel", "fused"),
    ],
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


AGENT = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}
# mpirun inside a job: these are those of the agent on the machine, not of the rank.
SLURM = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}


def said(dialect: str, **found: str) -> tuple[int, int, int, bool]:
    who = identify({"PACELINE_DIALECT": dialect, **found})
    return who.rank, who.world_size, who.local_rank, who.has_agent


def test_dialects() -> None:
    ours = {"PACELINE_RANK": "0", "PACELINE_WORLD_SIZE": "2", "PACELINE_LOCAL_RANK": "0"}
    assert said("local", **AGENT, **ours) == (0, 2, 0, False), "what we inherited is not ours"
    assert said("torchrun", **AGENT, **SLURM) == (3, 4, 1, True)
    assert said("accelerate", **AGENT) == (3, 4, 1, True)
    assert said("mpirun", **OPEN_MPI, **SLURM) == (2, 4, 0, False)
    assert said("mpirun", **MPICH, **SLURM) == (1, 2, 1, False)
    assert said("srun", **SLURM, **AGENT) == (0, 2, 0, False)


def test_a_launcher_that_says_nothing_is_not_believed() -> None:
    assert said("accelerate") == (0, 1, 0, False), "accelerate says nothing of a world of one: that is what it started"
    with pytest.raises(RunFailed, match="no launcher variables"):
        identify({})
    with pytest.raises(RunFailed, match="mpirun told this process neither rank nor world size"):
        identify({"PACELINE_DIALECT": "mpirun", **SLURM})
    with pytest.raises(RunFailed, match="not numbers"):
        identify({"PACELINE_DIALECT": "torchrun", **AGENT, "RANK": "one"})
