"""Launchers that start another world than was asked for, without a word: each rank compares, and nothing is trained.

The plans here are the wrong ones that people use; Paceline's own are in tests/golden/plans.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import Command
from paceline.launch.dialect import environment
from paceline.launch.plan import LAUNCHERS, Plan, Process, shared_env, worker_argv
from paceline.launch.supervise import supervise
from paceline.records.layout import RunDir
from paceline.records.record import Record
from paceline.spec.run import Spec
from paceline.study.execute import conclude, render, write_down


def ended(spec: Spec, processes: tuple[Process, ...], folder: Path) -> Record:
    run = RunDir(folder)
    rendered = render(spec, run)
    write_down(rendered)
    ended = supervise(replace(rendered.plan, processes=processes), run, timeout_s=60)
    return conclude(spec, run, rendered.launcher, ended)


def test_accelerate_starts_one_process_for_two(tmp_path: Path) -> None:
    """`accelerate launch --cpu --num_processes 2` runs one process, says nothing, and its exit code is 0."""
    spec = Spec(task="mnist-convnet", on="1x2", launcher="accelerate", threads=1, steps=2, device="cpu", weight_decay=0)
    words = (
        "--cpu",
        "--num_processes",
        "2",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
    )
    argv = (sys.executable, "-m", "accelerate.commands.launch", *words, "-m", "paceline.worker", "train", str(tmp_path))
    record = ended(spec, (Process("accelerate", argv, shared_env(spec)),), tmp_path)
    assert (record.outcome, record.kind) == ("failed", "mismatch")
    assert record.why == "asked for 2 processes (on=1x2), but accelerate started a world of 1: nothing was trained"


def test_mpi_makes_two_worlds_of_one(tmp_path: Path) -> None:
    """srun without the right plug-in: each process has its rank from Slurm, and MPI gives each a world of its own."""
    spec = Spec(
        task="mnist-convnet", on="1x2", launcher="slurm+srun", backend="mpi", threads=1, cpus_per_task=1, steps=2, device="cpu",
        weight_decay=0,
    )  # fmt: skip
    of_mpi = environment(spec.model_copy(update={"launcher": "mpirun"}))
    processes = tuple(
        Process(
            f"task_{rank}", worker_argv("train", RunDir(tmp_path)),
            {**shared_env(spec), **of_mpi, "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": str(rank)},
        )
        for rank in range(2)
    )  # fmt: skip
    record = ended(spec, processes, tmp_path)
    assert (record.outcome, record.kind) == ("failed", "mismatch")
    assert "asked for 2 processes, but the world of" in str(record.why) and "nothing was trained" in str(record.why)


def test_torchrun_with_another_number(tmp_path: Path) -> None:
    """A command copied from one launcher to another: per machine here, in all there."""
    spec = Spec(task="mnist-convnet", on="1x2", launcher="torchrun", threads=1, steps=2, device="cpu", weight_decay=0)
    plan: Plan = LAUNCHERS.load("torchrun")().plan(spec, RunDir(tmp_path))
    argv = list(plan.processes[0].argv)
    argv[argv.index("--nproc-per-node") + 1] = "3"
    record = ended(spec, (replace(plan.processes[0], argv=tuple(argv)),), tmp_path)
    assert record.kind == "mismatch" and "torchrun started a world of 3" in str(record.why)


def test_a_setting_that_a_wrapper_would_drop_is_refused(paceline_here: Command, tmp_path: Path) -> None:
    done = paceline_here("run", "mnist-convnet", "wrap=accelerate", "precision=fp16", "device=cpu")
    assert done.returncode == 2 and "accelerate drops fp16 there without a word and trains in fp32" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("launcher", ["torchrun", "accelerate", "local", "spawn", "slurm+torchrun"])
def test_mpi_without_an_mpi_launcher_is_refused(launcher: str, paceline_here: Command) -> None:
    done = paceline_here("run", "mnist-convnet", "on=1x2", f"launcher={launcher}", "backend=mpi")
    assert done.returncode == 2 and "use launcher=mpirun" in done.stderr
