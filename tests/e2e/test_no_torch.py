"""The parent never imports torch: what only reads or plans answers at once, also where torch is not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TASK = Path(__file__).with_name("tasks") / "good.py"
HEAVY = {"numpy", "scipy", "altair"}  # the first half of a second of a report; help and lists must not pay it
SMALL = ("features", "num_train=64", "num_test=32", "steps=2", "threads=1")


def call(folder: Path, *words: str, trace: bool = False) -> subprocess.CompletedProcess[str]:
    flags = ["-X", "importtime"] if trace else []
    command = [sys.executable, *flags, "-m", "paceline", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL)


def imported(folder: Path, *words: str) -> set[str]:
    """The top-level packages that `paceline WORDS` imports, by Python's own account."""
    done = call(folder, *words, trace=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout, "the command did what it was asked"
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    found = {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}
    assert {"paceline", "typer"} <= found, "the account is complete"
    return found


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished study in runs/features, and copies of its one run as a.run and b.run."""
    folder = tmp_path_factory.mktemp("desk")
    done = call(folder, "study", *SMALL, "--repeats", "1")
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs" / "features" / "cells").glob("*/*")
    for name in ("a.run", "b.run"):
        shutil.copytree(run, folder / name)
    return folder


WITHOUT_A_RUN = (
    "--help",
    "--version",
    "run --help",
    "list settings",
    "list tasks",
    "list studies",
    "list launchers",
    "list schema",
)
ON_A_RUN = (
    "report a.run", "report a.run --json", "report a.run --html a.html --markdown a.md --latex a.tex --samples a.csv",
    "report runs/features", "report runs/features --html s.html", "runs list --in .", "runs compare a.run b.run",
)  # fmt: skip
DRY = ("run mnist-convnet on=1x2 --dry-run", "study mnist-scaling --dry-run", "run {task} --dry-run")


@pytest.mark.parametrize("words", WITHOUT_A_RUN)
def test_help_and_lists_are_light(words: str, tmp_path: Path) -> None:
    assert not imported(tmp_path, *words.split()) & {"torch", *HEAVY}


@pytest.mark.parametrize("words", ON_A_RUN)
def test_what_reads_does_without_torch(words: str, desk: Path) -> None:
    assert "torch" not in imported(desk, *words.split())


@pytest.mark.parametrize("words", DRY)
def test_what_plans_does_without_torch(words: str, tmp_path: Path) -> None:
    """A user's task is imported by a process of its own; only that one needs torch."""
    assert "torch" not in imported(tmp_path, *words.format(task=TASK).split())


def test_a_report_needs_no_torch_at_all(desk: Path, tmp_path: Path) -> None:
    """A laptop without torch: importing it fails, and everything that reads still works."""
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch here')\n")
    without = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for words in ("report a.run --html laptop.html", "runs list --in .", "list tasks"):
        command = [sys.executable, "-m", "paceline", *words.split()]
        done = subprocess.run(command, cwd=desk, env=without, capture_output=True, text=True, timeout=100)
        assert (done.returncode, done.stderr) == (0, "")
    trained = subprocess.run(
        [sys.executable, "-m", "paceline", "run", *SMALL], cwd=tmp_path, env=without, capture_output=True, text=True, timeout=100
    )  # fmt: skip
    assert trained.returncode == 1 and "there is no torch here" in trained.stderr, "the stand-in is what is imported"
