"""A finished run of a study stands for its cell as long as everything it depended on is what it was; and weights are not loaded into
another model."""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

import paceline
from conftest import Command
from paceline.base.errors import BadInput

TASK = """
import csv
import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "library"))
import ours


def model(hidden: int = 4):
    return torch.nn.Sequential(torch.nn.Linear(2, hidden), ours.activation(), torch.nn.Linear(hidden, 2))


def rows(name):
    with open(os.path.join(os.path.dirname(__file__), name)) as file:
        table = torch.tensor([[float(word) for word in row] for row in csv.reader(file)])
    return table[:, :2] * float(os.environ.get("TASK_SCALE", "1")), table[:, 2].long()


def train_data():
    return rows("train.csv")


def test_data():
    return rows("test.csv")
"""
LIBRARY = """
import torch


def activation():
    return torch.nn.ReLU()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "task").mkdir()
    (tmp_path / "library").mkdir()
    (tmp_path / "task" / "task.py").write_text(TASK)
    (tmp_path / "library" / "ours.py").write_text(LIBRARY)
    for name, first in (("train", 0), ("test", 100)):
        rows = [f"{first + number}.5,{number % 7},{number % 2}\n" for number in range(40)]
        (tmp_path / "task" / f"{name}.csv").write_text("".join(rows))
    return tmp_path


def _study(paceline_here: Command, env: dict[str, str] | None = None) -> str:
    words = ("study", "task/task.py", "lr=0.1,0.2", "steps=2", "threads=1", "--repeats", "1", "--out", "study")
    done = paceline_here(*words, env=env)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stderr.split())


def test_what_changed_is_run_again_and_said(paceline_here: Command, home: Path) -> None:
    train, library = home / "task" / "train.csv", home / "library" / "ours.py"
    _study(paceline_here)
    assert "2 done already" in _study(paceline_here)

    train.write_text(
        "".join(line[:-2] + "1\n" for line in train.read_text().splitlines(keepends=True))
    )  # other labels, as long
    assert "2 finished runs are made again: train.csv changed since the run of " in _study(paceline_here)
    record = json.loads(next((home / "study").glob("cells/*/*/result.json")).read_text())
    (text,) = [warned["text"] for warned in record["warnings"] if warned["kind"] == "again"]
    assert text.startswith("made again, because train.csv changed since the run of ")
    assert "train.csv changed since the run of" in html.unescape((home / "study" / "report.html").read_text())
    assert "2 done already" in _study(paceline_here)

    library.write_text(LIBRARY.replace("ReLU", "Tanh"))  # a module outside of the task's folder
    assert "ours.py changed" in _study(paceline_here)
    assert "2 done already" in _study(paceline_here)

    assert "the variable TASK_SCALE changed" in _study(paceline_here, {"TASK_SCALE": "2"})
    assert "2 done already" in _study(paceline_here, {"TASK_SCALE": "2"})
    assert len(list((home / "study").glob("cells/*/*/result.json"))) == 2  # those put aside are no results
    shown = json.loads(paceline_here("runs", "list", "--in", "study", "--json").stdout)
    assert len(shown["runs"] if isinstance(shown, dict) else shown) == 2


def test_weights_are_not_loaded_into_another_model(
    paceline_here: Command, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "ours", ModuleType("ours"))  # to have it removed in the end
    del sys.modules["ours"]
    done = paceline_here("run", "task/task.py", "steps=2", "threads=1", "--json", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert [type(layer).__name__ for layer in paceline.load(home / "run").children()] == ["Linear", "ReLU", "Linear"]
    source = home / "task" / "task.py"
    source.write_text(TASK.replace("ours.activation()", "torch.nn.Tanh()"))
    with pytest.raises(BadInput, match=r"task\.py changed since this run, .* changed_source=True"):
        paceline.load(home / "run")
    model = paceline.load(home / "run", changed_source=True)
    assert [type(layer).__name__ for layer in model.children()] == ["Linear", "Tanh", "Linear"]
    source.write_text(TASK)
    (home / "library" / "ours.py").write_text(LIBRARY.replace("ReLU", "Tanh"))
    with pytest.raises(BadInput, match=r"ours\.py changed since this run"):
        paceline.load(home / "run")
