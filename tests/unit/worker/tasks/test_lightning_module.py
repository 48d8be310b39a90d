"""A LightningModule as a task: what is taken from it, and each thing that only a Trainer could do, refused by its name."""

from __future__ import annotations

import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.base.errors import PacelineError
from paceline.worker.tasks.feed import batches
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.load import Definition, find
from paceline.worker.tasks.order import Piece
from paceline.worker.tasks.task import Task

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its own, while it is imported
    pytest.importorskip("lightning.pytorch")
    pytest.importorskip("pytorch_lightning")

USUAL = {
    "training_step": "def training_step(self, batch, batch_idx):\n    x, y = batch\n    return F.cross_entropy(self.net(x), y)",
    "configure_optimizers": "def configure_optimizers(self):\n    return torch.optim.SGD(self.parameters(), lr=self.lr)",
    "train_dataloader": "def train_dataloader(self):\n    return DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True)",
    "val_dataloader": "def val_dataloader(self):\n    return DataLoader(TensorDataset(X[:7], Y[:7]))",
}
FILE = """\
import torch
import {package} as L
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
Y = (X.sum(dim=1) > 0).long()


class Lit(L.LightningModule):
    def __init__(self, width: int = 5, lr: float = 0.25, batch_size: int = 3):
        super().__init__()
        self.save_hyperparameters()
        self.lr = lr
        self.net = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))
        {more}

{methods}
"""


def define(tmp_path: Path, package: str = "lightning", more: str = "", /, **methods: str | None) -> Definition:
    """The file of a LightningModule with these methods instead of the usual ones; None takes one out."""
    text = "\n\n".join(body for body in {**USUAL, **methods}.values() if body)
    path = tmp_path / "lit.py"
    path.write_text(FILE.format(package=package, more=more, methods=textwrap.indent(text, "    ")))
    return find(str(path))


def task_of(tmp_path: Path, more: str = "", /, **methods: str | None) -> Task:
    return define(tmp_path, "lightning", more, **methods).build({"width": 5}, None)


def one_pass(task: Task, *, training: bool = True) -> Any:
    model = task.build_model().train(training)
    batch = tuple(tensor[:4] for tensor in task.train_data().dataset.tensors)
    outputs = task.forward(model, batch)
    return task.loss(outputs, batch), task.score(outputs, batch)


@pytest.mark.parametrize("package", ["lightning", "lightning.pytorch", "pytorch_lightning"])
def test_it_is_a_task_by_each_of_its_names(package: str, tmp_path: Path) -> None:
    definition = define(tmp_path, package)
    assert [param.name for param in definition.params] == ["width"], "lr is a setting, and so is the loader's batch"
    task = definition.build({"width": 9}, None)
    model: Any = task.build_model()
    assert model.net[0].out_features == 9
    train, test = task.train_data(), task.test_data()
    assert (train.batch_size, len(train.dataset), len(test.dataset)) == (3, 20, 7), (
        "its loaders, which any task may return"
    )
    x, y = train.dataset.tensors
    loss, scores = one_pass(task)
    assert scores == {} and loss.requires_grad
    assert task.forward(model, (x, y))["loss"].equal(torch.nn.functional.cross_entropy(model.net(x), y))


def test_its_rate_is_the_settings_and_groups_keep_their_proportions(tmp_path: Path) -> None:
    groups = (
        "def configure_optimizers(self):\n    first, _, last = self.net\n"
        "    rows = [{'params': first.parameters()}, {'params': last.parameters(), 'lr': 0.5}]\n"
        "    return torch.optim.SGD(rows, lr=self.lr)"
    )
    task = task_of(tmp_path, configure_optimizers=groups)
    model = task.build_model()
    assert task.own_rate is not None and task.optimizer is not None
    assert task.own_rate(model) == 0.25
    assert [group["lr"] for group in task.optimizer(model, 0.25).param_groups] == [0.25, 0.5]
    assert [group["lr"] for group in task.optimizer(model, 1.0).param_groups] == [1.0, 2.0]
    assert task_of(tmp_path, configure_optimizers=None).optimizer is None, "then the settings name one"


LOGS = (
    "def validation_step(self, batch):\n    x, y = batch\n    hits = (self.net(x).argmax(dim=1) == y).float().mean()\n"
    "    self.log('acc', hits)\n    self.log_dict({'half': hits / 2}, on_epoch=True, prog_bar=True)"
)


def test_what_the_step_of_the_test_data_logs_are_its_scores(tmp_path: Path) -> None:
    task = task_of(tmp_path, validation_step=LOGS)
    loss, scores = one_pass(task, training=False)
    assert loss.numel() == 1 and set(scores) == {"acc", "half"}
    assert float(scores["acc"]) == 2 * float(scores["half"])
    assert one_pass(task)[1] == {}, "in training nothing is scored: that would be another forward pass"


def test_a_metric_of_torchmetrics_gives_its_value_for_the_batch_and_keeps_nothing(tmp_path: Path) -> None:
    metric = "from torchmetrics.classification import BinaryAccuracy; self.acc = BinaryAccuracy()"
    called = "def test_step(self, batch):\n    x, y = batch\n    self.acc(self.net(x).argmax(dim=1), y)\n    self.log('acc', self.acc)"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task = task_of(tmp_path, metric, test_step=called)
        model: Any = task.build_model().eval()
        batch = tuple(tensor[:8] for tensor in task.train_data().dataset.tensors)
        score = task.score(task.forward(model, batch), batch)
        expected = (model.net(batch[0]).argmax(dim=1) == batch[1]).float().mean()
        assert float(score["acc"]) == float(expected) and model.acc._update_count == 0
        with pytest.raises(PacelineError, match="updated and not called"):
            one_pass(
                task_of(tmp_path, metric, test_step=called.replace("self.acc(", "self.acc.update(")), training=False
            )


def step(line: str) -> dict[str, str]:
    return {
        "training_step": f"def training_step(self, batch, batch_idx):\n    {line}\n    return self.net(batch[0]).sum()"
    }


def optimizer(line: str) -> dict[str, str]:
    return {
        "configure_optimizers": f"def configure_optimizers(self):\n    adam = torch.optim.Adam(self.parameters())\n    return {line}"
    }


def loader(line: str) -> dict[str, str]:
    return {"train_dataloader": f"def train_dataloader(self):\n    data = TensorDataset(X, Y)\n    return {line}"}


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "a callback": ({"on_train_epoch_end": "def on_train_epoch_end(self):\n    pass"}, r"defines on_train_epoch_end\(\)"),
    "the end of a validation": (
        {"on_validation_epoch_end": "def on_validation_epoch_end(self):\n    pass"}, r"defines on_validation_epoch_end\(\)",
    ),
    "clipping": (
        {"configure_gradient_clipping": "def configure_gradient_clipping(self, *a):\n    pass"}, r"configure_gradient_clipping\(\)",
    ),
    "its own update": ({"optimizer_step": "def optimizer_step(self, *a):\n    pass"}, r"optimizer_step\(\)"),
    "callbacks": ({"configure_callbacks": "def configure_callbacks(self):\n    return []"}, r"configure_callbacks\(\)"),
    "the trainer": (step("self.trainer.max_epochs"), r"uses self\.trainer,"),
    "the epoch": (step("beta = self.current_epoch / 10"), r"uses self\.current_epoch,"),
    "the step": (step("beta = self.global_step / 10"), r"uses self\.global_step,"),
    "a logger": (step("self.logger.experiment"), r"uses self\.logger,"),
    "its optimizers": (step("self.optimizers()"), r"uses self\.optimizers,"),
    "the number of the batch": (step("if batch_idx % 2: pass"), "uses batch_idx"),
    "no loss": ({"training_step": "def training_step(self, batch):\n    pass"}, "returned no loss"),
    "a sum of logged values": (
        {"training_step": USUAL["training_step"].replace("return", "self.log('n', 1, reduce_fx='sum')\n    return")}, "reduce_fx='sum'",
    ),
    "several optimizers": (optimizer("[adam, adam]"), "returned 2 optimizers"),
    "a scheduler": (optimizer("[adam], [torch.optim.lr_scheduler.StepLR(adam, 1)]"), "returned a learning-rate scheduler"),
    "a scheduler in a dict": (
        optimizer("{'optimizer': adam, 'lr_scheduler': torch.optim.lr_scheduler.StepLR(adam, 1)}"), "learning-rate scheduler",
    ),
    "no optimizer": (optimizer("None"), "returned a NoneType"),
    "several loaders": (loader("[DataLoader(data), DataLoader(data)]"), r"train_dataloader\(\) returned a list"),
    "a sampler": (loader("DataLoader(data, sampler=WeightedRandomSampler(torch.ones(20), 20))"), "a sampler of its own"),
    "no data to test with": ({"val_dataloader": ""}, r"no val_dataloader\(\)"),
}  # fmt: skip


def whole(tmp_path: Path, methods: dict[str, str]) -> None:
    """All that a run does with a task before its first update."""
    task = task_of(tmp_path, **methods)
    model, train = task.build_model(), make_feed(task.train_data(), what="train_data()", collate=None)
    task.test_data()
    assert task.own_rate is not None
    task.own_rate(model)
    task.forward(model, next(batches(train, [Piece(np.arange(4), 4)])))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_honoured_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    methods, said = REFUSED[name]
    with pytest.raises(PacelineError, match=said) as refused:
        whole(tmp_path, methods)
    assert "\n" not in str(refused.value)


def test_manual_optimization_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="automatic_optimization=False"):
        task_of(tmp_path, "self.automatic_optimization = False").build_model()


DATA = """\
class Data(L.LightningDataModule):
    def __init__(self, num: int = 6):
        super().__init__()
        self.num = num

    def setup(self, stage):
        self.stage, self.split = stage, torch.randperm(20)[: self.num]

    def train_dataloader(self):
        return DataLoader(TensorDataset(X[self.split], Y[self.split]))

    def val_dataloader(self):
        assert self.stage == "fit"
        return self.train_dataloader()
"""


def test_a_data_module_beside_it_gives_the_data(tmp_path: Path) -> None:
    definition = define(tmp_path, train_dataloader=None, val_dataloader=None)
    assert definition.source is not None
    data = "\n\n" + DATA
    definition.source.write_text(definition.source.read_text() + data)
    definition = find(str(definition.source))
    assert [param.name for param in definition.params] == ["num", "width"]
    task = definition.build({"num": 4, "width": 5}, None)
    (x, _), (again, _) = task.train_data().dataset.tensors, task.test_data().dataset.tensors
    assert len(x) == 4 and torch.equal(x, again), "what setup draws is drawn once"


def test_two_modules_in_a_file_are_a_question(tmp_path: Path) -> None:
    path = define(tmp_path).source
    assert path is not None
    path.write_text(path.read_text() + "\n\nclass Other(Lit):\n    pass\n")
    with pytest.raises(PacelineError, match=r"several tasks; say which: lit\.py:Lit, lit\.py:Other"):
        find(str(path))
    assert find(f"{path}:Other").build({"width": 5}, None).build_model() is not None
