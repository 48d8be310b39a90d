"""Whose data is it? Test samples that were trained on, ranks that were given other samples, streams that walk in another order each time:
each is said where it is read, or ends the run."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Command

LEAK = """
import torch

ROWS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 2


def model():
    return torch.nn.Linear(4, 2)


def train_data():
    return ROWS[:50], LABELS[:50]


def test_data():
    return ROWS[40:], 1 - LABELS[40:]
"""
FOUND = "10 of 20 test samples have inputs that training samples have too"


def test_a_leak_is_in_the_record_on_the_terminal_and_on_the_page(paceline_here: Command, tmp_path: Path) -> None:
    (tmp_path / "leak.py").write_text(LEAK)
    done = paceline_here("study", "leak.py", "lr=0.1,0.2", "steps=2", "threads=1", "--repeats", "1", "--out", "study")
    assert done.returncode == 0, done.stderr
    assert FOUND in " ".join(done.stdout.split())
    assert FOUND in html.unescape((tmp_path / "study" / "report.html").read_text())
    records = [json.loads(path.read_text()) for path in (tmp_path / "study").glob("cells/*/*/result.json")]
    assert len(records) == 2
    for record in records:
        ((kind, text),) = [(warned["kind"], warned["text"]) for warned in record["warnings"]]
        assert kind == "leak" and text.startswith(FOUND)


TWO_SPLITS = """
import numpy as np
import torch
from torch.utils.data import Subset, TensorDataset


class Samples(TensorDataset):
    # of a kind of its own, so nobody takes its tensors out
    pass


WHOLE = Samples(torch.arange(400.0).reshape(100, 4), torch.arange(100) % 2)


def model():
    return torch.nn.Linear(4, 2)


def split():
    return np.random.default_rng().permutation(100)


def train_data():
    return Subset(WHOLE, split()[:80])


def test_data():
    return Subset(WHOLE, split()[80:])
"""


def test_ranks_with_other_splits_do_not_train(paceline_here: Command, tmp_path: Path) -> None:
    (tmp_path / "split.py").write_text(TWO_SPLITS)
    done = paceline_here("run", "split.py", "on=1x2", "steps=2", "batch=8", "threads=1", "--json", "--out", "run")
    assert done.returncode == 1, done.stdout
    record = json.loads(done.stdout)
    assert (record["outcome"], record["kind"]) == ("failed", "data")
    assert "split.py: train_data() gave other samples on rank 1 than on rank 0" in record["why"]
    assert not record["train"]


CALLS = """
import os
import sys
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).parent


def called(name):
    job = "describe" if "describe" in sys.argv[1:] else "rank"
    with open(HERE / "calls.log", "a") as file:
        file.write(f"{name} {job}\\n")


def model():
    return torch.nn.Linear(2, 2)


def train_data():
    called("train")
    rows = torch.from_numpy(np.load(HERE / "rows.npy"))
    if os.environ.get("UNSEEDED"):
        rows = rows + torch.from_numpy(np.random.default_rng().random(rows.shape, dtype=np.float32))
    return rows, torch.arange(len(rows)) % 2


def test_data():
    rows = torch.from_numpy(np.load(HERE / "rows.npy"))
    return rows, torch.arange(len(rows)) % 2
"""


def test_a_task_that_has_not_changed_is_not_looked_into_again(
    paceline_here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run loads its data in its ranks only, and its record says of the data what the first one's does."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "calls.py").write_text(CALLS)
    np.save(tmp_path / "rows.npy", np.arange(20, dtype=np.float32).reshape(10, 2))

    def jobs(name: str, **env: str) -> tuple[list[str], dict[str, Any]]:
        (tmp_path / "calls.log").unlink(missing_ok=True)
        done = paceline_here("run", "calls.py", "steps=2", "threads=1", "--json", "--out", name, env=env)
        record = json.loads(done.stdout)
        assert record["outcome"] == "completed", done.stderr
        return [line.split()[1] for line in (tmp_path / "calls.log").read_text().splitlines()], record

    calls, first = jobs("first")
    assert calls == ["describe", "rank"] and [row["kind"] for row in first["warnings"]] == ["leak"]
    calls, second = jobs("second")
    assert calls == ["rank"]
    for key in ("warnings", "probe", "key", "weights_hash", "num_parameters"):
        assert second[key] == first[key], key
    assert second["spec"]["inputs"] == first["spec"]["inputs"]
    np.save(tmp_path / "rows.npy", np.arange(22, dtype=np.float32).reshape(11, 2))
    assert jobs("third")[0] == ["describe", "rank"]
    # Data that is drawn anew each time: every run says so, and every run is looked into.
    for name in ("fourth", "fifth"):
        calls, record = jobs(name, UNSEEDED="1")
        assert calls == ["describe", "rank"] and "other-data" in [row["kind"] for row in record["warnings"]]
