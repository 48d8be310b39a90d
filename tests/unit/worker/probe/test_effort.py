"""A model whose passes take long is looked at with few samples, at its outputs: it must come to what a thorough look comes to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.base.errors import RunFailed
from paceline.spec.verdict import Verdict
from paceline.worker.probe import effort
from paceline.worker.probe.probe import probe
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.load import load_task

HERE = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def kept_by_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch's compiler sets it when the probe's libraries are loaded."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


def seen(path: str) -> Verdict | str:
    """The verdict, or why the task is refused."""
    try:
        task = load_task(path, {}, None)
        train = make_feed(task.train_data(), what="data", collate=task.collate)
        with torch.random.fork_rng():
            return probe(task, train, task.build_model(), couples=False, seed=1)
    except RunFailed as error:
        return error.why


def lean(monkeypatch: pytest.MonkeyPatch, path: str) -> Verdict | str:
    """As of a model whose passes are too long for anything else."""
    monkeypatch.setattr(effort, "_BUDGET_S", -1.0)
    return seen(path)


TASKS = [
    "VaePair", "VaeTerms", "VaeSummed", "Weighted", "WeightedRatio", "Contrastive", "F1", "R2", "Tokens", "Stream", "Annealed",
    "AnnealedByStep", "Normed", "Own", "LearnedLoss", "Objects", "Spread", "RunningCentre", "WholeScores", "Named", "Gan",
    "PrecisionRecall", "Physics", "HardestHalf", "ModelOfData",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:var")  # of the variance of one sample
@pytest.mark.parametrize("task", TASKS)
def test_a_short_look_sees_what_a_long_one_sees(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{HERE / 'parity' / 'ten_tasks.py'}:{task}"
    with monkeypatch.context() as patched:
        patched.setattr(effort, "_BUDGET_S", 100.0)
        long = seen(path)
    short = lean(monkeypatch, path)
    if isinstance(long, str) or isinstance(short, str):
        assert long == short
        return
    assert short.samples == 3 < long.samples
    what = ("loss", "terms", "scores", "buffers", "changes", "changes_python", "rows", "draws", "unknown")
    assert {name: getattr(short, name) for name in what} == {name: getattr(long, name) for name in what}


BASE = """
import torch
from torch import nn
from torch.nn import functional as F

def train_data():
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1, keepdim=True)
test_data = train_data
"""
PLAIN = "def model(): return nn.Linear(4, 1)\n"
HIDDEN = {
    # a penalty on weights is added to each part's mean: it stays a mean, and to its sum: then it couples
    "a penalty beside a mean": (
        "net = None\ndef model():\n    global net\n    net = nn.Linear(4, 1)\n    return net\n"
        "def loss(outputs, batch): return F.mse_loss(outputs, batch[1]) + 0.1 * net.weight.square().sum()\n",
        "mean",
    ),
    "a count that forward leaves": (
        PLAIN
        + "count = {}\ndef forward(model, batch):\n    count['n'] = float((batch[0] > 0).sum())\n    return model(batch[0])\n"
        "def loss(outputs, batch): return ((outputs - batch[1]) ** 2).sum() / count['n']\n",
        "coupled",
    ),
    "a loss inside forward": (
        PLAIN + "def forward(model, batch): return {'loss': F.mse_loss(model(batch[0]), batch[1])}\n"
        "def loss(outputs, batch): return outputs['loss']\n",
        "mean",
    ),
    "a sum inside forward": (
        PLAIN + "def forward(model, batch): return {'loss': F.mse_loss(model(batch[0]), batch[1], reduction='sum')}\n"
        "def loss(outputs, batch): return outputs['loss']\n",
        "total",
    ),
    "an activation kept by forward": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.one, self.two = nn.Linear(4, 3), nn.Linear(3, 1)\n"
        "    def forward(self, x):\n        self.kept = self.one(x)\n        return self.two(self.kept.tanh())\n"
        "net = None\ndef model():\n    global net\n    net = Net()\n    return net\n"
        "def loss(outputs, batch): return F.mse_loss(outputs, batch[1]) + net.kept.square().sum()\n",
        "coupled",
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_loss_that_looks_behind_the_outputs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, kind = HIDDEN[name]
    (tmp_path / "mine.py").write_text(BASE + text)
    short = lean(monkeypatch, str(tmp_path / "mine.py"))
    assert isinstance(short, Verdict) and short.loss == kind, short
