"""`paceline doctor` on this machine: true rows as text and JSON; a missing program, a broken torch, a program that hangs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.launch.plan import LAUNCHERS

Command = Callable[..., "subprocess.CompletedProcess[str]"]
GROUPS = [
    "machine", "GPU", "precisions", "backends", "launchers", "Slurm", "network", "compilers", "cluster in a box",
]  # fmt: skip


def rows_of(done: subprocess.CompletedProcess[str]) -> dict[tuple[str, str], dict[str, Any]]:
    assert done.stderr == ""
    said = json.loads(done.stdout)
    assert said["schema"] == 1 and all(set(row) == {"group", "what", "state", "found", "fix"} for row in said["rows"])
    assert all(row["fix"] for row in said["rows"] if row["state"] != "yes"), (
        "what is not so can be mended, or need not be"
    )
    return {(row["group"], row["what"]): row for row in said["rows"]}


def test_text_fits_a_terminal_of_100_columns(paceline: Command) -> None:
    done = paceline("doctor", env={"COLUMNS": "100"})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.strip() for line in lines if line.strip() in GROUPS and not line.startswith("│")] == GROUPS
    assert max(map(len, lines)) <= 100
    assert not any("…" in line for line in lines), "wrapped, not cut"
    assert lines[-1].startswith("this machine can train")


def test_json_says_what_is_here(paceline: Command, tmp_path: Path) -> None:
    done = paceline("doctor", "--json")
    assert done.returncode == 0
    rows = rows_of(done)
    assert {name for group, name in rows if group == "launchers"} == set(LAUNCHERS.names())
    always = [("machine", "torch"), ("launchers", "local"), ("backends", "gloo"), ("precisions", "fp32 on cpu")]
    assert all(rows[key]["state"] == "yes" for key in [*always, ("precisions", "fp64 on cpu")])
    assert sys.executable in rows["machine", "Python"]["found"]
    assert str(tmp_path / "runs") in rows["machine", "disk"]["found"] and not (tmp_path / "runs").exists()
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_what_is_not_on_the_path_is_a_row_with_its_fix(paceline: Command) -> None:
    if (Path(sys.executable).parent / "mpirun").exists():
        pytest.skip("this environment has an mpirun of its own, whatever PATH says")
    done = paceline("doctor", "--json", env={"PATH": "/nowhere"})
    assert done.returncode == 0, "one machine and a CPU are enough to train"
    rows = rows_of(done)
    for key, fix in (
        (("launchers", "mpirun"), "openmpi-bin"), (("backends", "mpi"), "openmpi-bin"), (("launchers", "slurm+srun"), "login node"),
        (("Slurm", "controller"), "paceline cluster up"), (("compilers", "g++"), "apt install g++"),
    ):  # fmt: skip
        assert rows[key]["state"] == "no" and fix in rows[key]["fix"], rows[key]


def test_a_broken_torch_is_a_row_and_exit_code_1(paceline: Command, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch here')\n")
    done = paceline("doctor", "--json", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert "there is no torch here" in rows_of(done)["machine", "torch"]["found"]
    assert "there is no torch here" in json.loads(done.stdout)["why"]


def test_a_torch_that_kills_its_process_is_a_row(paceline: Command, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    done = paceline("doctor", "--json", env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1 and "SIGILL" in rows_of(done)["machine", "torch"]["found"]


def test_a_program_that_hangs_or_is_none_is_a_row(paceline: Command, tmp_path: Path) -> None:
    if (Path(sys.executable).parent / "ninja").exists():
        pytest.skip("this environment has a ninja of its own, whatever PATH says")
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ninja").write_text("#!/bin/sh\nexec sleep 60\n")
    (folder / "g++").write_text("this is no program\n")
    for name in ("ninja", "g++"):
        (folder / name).chmod(0o755)
    rows = rows_of(paceline("doctor", "--json", env={"PATH": f"{folder}:{os.environ['PATH']}"}))
    assert "did not answer within" in rows["compilers", "ninja"]["found"]
    assert rows["compilers", "g++"]["state"] == "partly"


def test_the_parent_imports_no_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "paceline", "doctor", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0
    names = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "paceline.commands.doctor.look" in names, "the account is complete"
    assert not {name.partition(".")[0] for name in names} & {"torch", "numpy", "scipy", "mpi4py"}
