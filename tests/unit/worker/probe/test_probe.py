"""What the probe finds out about tasks that people write: losses inside models, steps made of noise, data that draws or is padded."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.spec.verdict import Verdict
from paceline.worker.probe.probe import probe
from paceline.worker.probe.recombine import ENOUGH, uneven
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.load import load_task


@pytest.fixture(autouse=True)
def kept_by_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """torch's compiler sets it when the probe's libraries are loaded."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))


BASE = """
import torch
from torch import nn
from torch.nn import functional as F
class Own(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.layer, self.of = nn.Linear(4, 3), loss
    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": self.of(logits, labels), "logits": logits}
def data(labels):
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    return {"x": x, "labels": labels}
LABELS = torch.arange(40) % 3
def train_data(): return data(LABELS)
test_data = train_data
"""


def look(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "mine.py").write_text(BASE + text)
    task = load_task(str(tmp_path / "mine.py"), {}, None)
    feed = make_feed(task.train_data(), what="data", collate=task.collate)
    found = probe(task, feed, couples=False, seed=1)
    assert found.unknown is None
    return found


def test_a_classifiers_own_loss_is_a_mean_and_no_rank_could_gather_it(tmp_path: Path) -> None:
    found = look(tmp_path, "def model(): return Own(F.cross_entropy)\n")
    assert (found.loss, found.rows, found.scores) == ("mean", False, {})


@pytest.mark.parametrize(
    "text",
    [
        # weights of classes, of which all samples have the same one
        "LABELS = torch.ones(40, dtype=torch.long)\n"
        "def model(): return Own(lambda o, y: F.cross_entropy(o, y, weight=o.new_tensor([1.0, 2.0, 3.0])))\n",
        # targets that are left out, and are the same part of every batch that is looked at
        "LABELS = torch.where(torch.arange(40) % 2 == 0, LABELS, -100)\ndef model(): return Own(F.cross_entropy)\n",
        "def model(): return Own(lambda o, y: F.cross_entropy(o, y) * y.double().var())\n",
    ],
)
def test_a_models_own_loss_may_couple_its_samples(tmp_path: Path, text: str) -> None:
    found = look(tmp_path, text)
    assert (found.loss, found.rows) == ("coupled", False)


STEP = """
def model():
    return nn.ModuleDict({"g": nn.Linear(2, 4), "d": nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))})
def train_data(): return (data(LABELS)["x"],)
test_data = train_data
def optimizers(model, lr):
    return {name: torch.optim.SGD(model[name].parameters(), lr) for name in ("d", "g")}
def step(model, batch, optimizers):
    fake = model["g"](torch.randn(len(batch[0]), 2, dtype=batch[0].dtype))
    d = F.softplus(model["d"](fake.detach())).mean() + F.softplus(-model["d"](batch[0])).mean()
    optimizers["d"].zero_grad()
    d.backward()
    optimizers["d"].step()
    g = F.softplus(-model["d"](fake)).mean() MORE
    optimizers["g"].zero_grad()
    g.backward()
    optimizers["g"].step()
    return {"d": d, "g": g}
"""


def test_samples_made_of_noise_alone_are_told_apart(tmp_path: Path) -> None:
    """Else the generator's gradient would be the same for any samples, and say nothing. It has BatchNorm, which needs two."""
    found = look(tmp_path, STEP.replace("MORE", ""))
    assert (found.loss, found.draws, found.needs_two, found.buffers) == ("mean", True, True, "batchnorm")
    assert look(tmp_path, STEP.replace("MORE", "- fake.var()")).loss == "coupled"


SET = """
def model(): return nn.Linear(4, 3)
class Set(torch.utils.data.Dataset):
    def __init__(self): self.x, self.rng = data(LABELS)["x"], np.random.default_rng(0)
    def __len__(self): return 40
    def __getitem__(self, index): return self.x[index] * DRAWN, LABELS[index]
import numpy as np
import random
def train_data(): return Set()
"""


@pytest.mark.parametrize(
    ("drawn", "draws"),
    [
        ("1.0", False),
        ("torch.rand(1, generator=torch.Generator().manual_seed(index))", False),
        ("torch.rand(1)", True),
        ("(random.random() < 0.001)", True),
        ("np.random.rand()", True),
        ("self.rng.random()", True),
        ("float(np.random.default_rng().random())", True),
    ],
)
def test_data_that_draws_at_random_is_noticed(tmp_path: Path, drawn: str, draws: bool) -> None:
    assert look(tmp_path, SET.replace("DRAWN", drawn)).data_draws is draws


PADDED = """
def model(): return nn.Embedding(9, 3)
def train_data(): return [(torch.arange(1 + i % 3), i % 2) for i in range(30)]
def collate(samples):
    return nn.utils.rnn.pad_sequence([x for x, _ in samples], batch_first=True), torch.tensor([y for _, y in samples])
def forward(model, batch): return model(batch[0]).sum(1)
"""


def test_batches_that_are_padded_to_their_longest_matter_to_a_loss_that_couples(tmp_path: Path) -> None:
    assert not look(tmp_path, PADDED).ragged
    assert look(tmp_path, PADDED + "def loss(o, b): return o.std()\n").ragged


def test_a_longer_sample_in_one_part_is_no_coupling(tmp_path: Path) -> None:
    """Outputs for each position, of which the whole has more than a part: those that both have are compared."""
    each = PADDED.replace(".sum(1)", "").replace("1 + i % 3", "3 if i == 20 else 2")
    loss = "def loss(o, b): return paceline.ratio(o[:, :2].sum(), len(o))\nimport paceline\n"
    score = (
        "def score(o, b): return {'a': paceline.ratio(((o.argmax(2) == b[0]) & (b[0] > 0)).sum(), (b[0] > 0).sum())}\n"
    )
    found = look(tmp_path, each + loss + score)
    assert (found.buffers, found.together_in_evaluation, found.loss, found.scores) == (
        "apart",
        False,
        "ratio",
        {"a": "ratio"},
    )
    mixed = "def forward(model, batch): return model(batch[0]) - model(batch[0]).mean(0)\n"
    assert look(tmp_path, each + mixed + loss).buffers == "together"


ROUNDED = """
def model(): return nn.Linear(4, 3)
def train_data(): return data(LABELS)["x"], LABELS
test_data = train_data
def loss(outputs, batch): return F.cross_entropy(outputs.{format}, batch[1])
def score(outputs, batch):
    hits = outputs.argmax(1) == batch[1]
    return {{"mean": hits.float().mean(), "f1": (2 * hits[batch[1] == 1].sum() / ((outputs.argmax(1) == 1).sum() + 13)).float()}}
"""


@pytest.mark.parametrize("to", ["float()", "half().float()", "bfloat16().float()", "double()"])
def test_what_a_task_rounds_by_itself_is_a_mean_all_the_same(tmp_path: Path, to: str) -> None:
    found = look(tmp_path, ROUNDED.format(format=to))
    assert found.loss == "mean"
    assert found.scores == {"mean": "mean", "f1": "whole"}


def test_parts_of_a_batch_are_uneven_and_of_odd_sizes_too() -> None:
    for num in range(2, 50):
        parts = uneven(num)
        sizes = [len(part) for part in parts]
        assert [place for part in parts for place in part] == list(range(num))
        assert len(sizes) == (3 if num >= ENOUGH else 2)
        assert len(set(sizes)) > 1 or num in (2, 3), sizes
    assert [len(part) for part in uneven(48)] == [11, 14, 23]


WEIGHTS = """
def model(): return nn.Sequential(nn.Embedding(20, 4, max_norm=LIMIT), nn.Linear(4, 3))
def train_data(): return LABELS * 5 + torch.arange(40) % 5, LABELS
test_data = train_data
"""
BOUNDS = """
def model(): return nn.Linear(4, 3)
def train_data(): return data(LABELS)["x"], LABELS
test_data = train_data
def forward(model, batch):
    model.weight.data.clamp_(-0.1, 0.1)
    return model(batch[0])
"""


def test_weights_that_forward_changes(tmp_path: Path) -> None:
    """Each rank would change those of its own samples; held within bounds they are the same on all."""
    found = look(tmp_path, WEIGHTS.replace("LIMIT", "0.5"))
    assert (found.changes, found.changes_by, found.moves_weights) == (("0.weight",), "data", True)
    found = look(tmp_path, WEIGHTS.replace("LIMIT", "None"))
    assert (found.changes, found.moves_weights) == ((), False)
    found = look(tmp_path, BOUNDS)
    assert (found.changes, found.changes_by, found.moves_weights) == (("weight",), "calls", True)


@pytest.mark.parametrize(
    ("line", "generator"),
    [("torch.manual_seed(3)", "torch"), ("random.seed(3)", "python"), ("np.random.seed(3)", "numpy"), ("random.random()", None)],
)  # fmt: skip
def test_a_forward_that_seeds_a_generator(tmp_path: Path, line: str, generator: str | None) -> None:
    text = BOUNDS.replace("model.weight.data.clamp_(-0.1, 0.1)", line) + "import random\nimport numpy as np\n"
    found = look(tmp_path, text)
    assert found.seeds is (generator is not None)
    assert found.changes == (() if generator is None else (f"the seed of {generator}",))


@pytest.mark.parametrize(
    ("hook", "bends"),
    [("gradient * 0.5", False), ("gradient.clamp(-1, 1)", True), ("gradient.sign()", True), ("gradient.relu()", True)],
)
def test_hooks_that_make_other_gradients(tmp_path: Path, hook: str, bends: bool) -> None:
    hooked = f"    model.weight.register_hook(lambda gradient: {hook})\n    return model(batch[0])\n"
    text = BOUNDS.replace("    model.weight.data.clamp_(-0.1, 0.1)\n    return model(batch[0])\n", hooked)
    assert look(tmp_path, text).bends_gradients is bends


def test_the_rarest_samples_of_tensors_are_looked_at(tmp_path: Path) -> None:
    rare = """
def model(): return nn.Linear(4, 1)
def train_data():
    x = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    counts = torch.ones(3000)
    counts[1234] = ODD
    return x, counts, x[:, 0]
test_data = train_data
def forward(model, batch): return model(batch[0])[:, 0]
def loss(outputs, batch):
    counts = batch[1].nan_to_num()
    return (counts * (outputs - batch[2]) ** 2).sum() / counts.sum()
"""
    assert look(tmp_path, rare.replace("ODD", "1.0")).loss == "mean"
    for odd in ("0.0", "7.0", "float('nan')"):
        assert look(tmp_path, rare.replace("ODD", odd)).loss == "coupled", odd
