"""Parameters that nothing would train are found before anything trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.base.errors import RunFailed
from paceline.spec.verdict import Verdict
from paceline.worker.probe.probe import probe
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.load import load_task


@pytest.fixture(autouse=True)
def kept_by_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch's compiler sets it when the probe's libraries are loaded."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


BASE = """
import torch
from torch import nn
def model(): return nn.Linear(2, 3)
def train_data():
    x = torch.arange(24.0).view(12, 2)
    return x, x.sum(1).long() % 3
test_data = train_data
"""


def look(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "mine.py").write_text(BASE + text)
    task = load_task(str(tmp_path / "mine.py"), {}, None)
    return probe(task, make_feed(task.train_data(), what="data", collate=None), couples=False, seed=1)


CENTRES = "centres = nn.Embedding(3, 3)\n"
USES = "def loss(outputs, batch): return ((outputs - centres(batch[1])) ** 2).mean()\n"


def test_a_module_beside_the_model_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="9 parameters of centres") as error:
        look(tmp_path, CENTRES + USES)
    assert "model.centres = centres" in str(error.value) and "requires_grad_(False)" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        CENTRES + "centres.requires_grad_(False)\n" + USES,
        CENTRES + "def model():\n    made = nn.Linear(2, 3)\n    made.centres = centres\n    return made\n" + USES,
        # what forward makes anew each time is no parameter
        "def forward(model, batch):\n    x = batch[0].clone().requires_grad_()\n    return model(x)\n",
        # a teacher that no gradient reaches
        "teacher = nn.Linear(2, 3)\ndef loss(outputs, batch):\n    with torch.no_grad():\n        there = teacher(batch[0])\n"
        "    return ((outputs - there) ** 2).mean()\n",
    ],
)
def test_what_is_frozen_or_in_the_model_is_fine(tmp_path: Path, text: str) -> None:
    look(tmp_path, text)


def test_forward_is_looked_at_too(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="parameters of encoder"):
        look(
            tmp_path,
            "encoder = nn.Linear(2, 2)\ndef forward(model, batch): return model(encoder(batch[0]))\n",
        )
