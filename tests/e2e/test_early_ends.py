"""Ends before the training has begun: the parent killed while ranks still import torch, a rank that leaves before it has joined."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from conftest import Command
from e2e.processes import alive, left_after, marked

LEAVES = """\
import os
import torch


def model():
    return torch.nn.Linear(2, 2)


def train_data():
    if os.environ.get("PACELINE_RANK") == "1":
        os._exit(0)
    return torch.zeros(8, 2), torch.zeros(8, dtype=torch.long)


def test_data():
    return torch.zeros(4, 2), torch.zeros(4, dtype=torch.long)
"""


def workers(case: Path) -> int:
    return sum("paceline.worker" in line or "multiprocessing.spawn" in line for line in alive(case))


# accelerate's launcher is torchrun's agent under another name: `make soak` tries it too.
LAUNCHERS = [("local", 1), ("spawn", 3), ("torchrun", 2), ("mpirun", 2)]


@pytest.mark.parametrize(("launcher", "processes"), [*LAUNCHERS, pytest.param("accelerate", 2, marks=pytest.mark.slow)])
def test_no_rank_outlives_a_parent_killed_during_start_up(launcher: str, processes: int, tmp_path: Path) -> None:
    """As soon as the processes exist, and before any of them can have joined: the kernel alone cannot see to this."""
    command = [
        sys.executable,
        "-m",
        "paceline",
        "run",
        "mnist-convnet",
        "on=1x2",
        f"launcher={launcher}",
        "--out",
        "run",
    ]
    parent = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, **marked(tmp_path)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while workers(tmp_path) < processes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert workers(tmp_path) >= processes
    psutil.Process(parent.pid).send_signal(signal.SIGKILL)
    parent.wait()
    assert left_after(tmp_path, seconds=20) == []
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_rank_that_leaves_before_joining_does_not_hang_the_others(paceline: Command, tmp_path: Path) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES)
    began = time.monotonic()
    done = paceline("run", "leaves.py", "on=1x2", "steps=2")
    assert done.returncode == 1
    assert "rank 1 left before it had finished" in done.stderr
    assert time.monotonic() - began < 60, "not the half hour of a collective's patience"
