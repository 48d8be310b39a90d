"""Every function of a task's file is called as it is meant, left alone with a word, or refused: none is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.base.errors import RunFailed
from paceline.worker.tasks.load import load_task
from paceline.worker.tasks.task import Task

BASE = """
import torch
from torch import nn
def model(): return nn.Linear(2, 1)
def train_data(): return torch.zeros(4, 2), torch.zeros(4, 1)
test_data = train_data
"""
SCORE = "def score(outputs, batch): return accuracy(outputs)\n"


def load(tmp_path: Path, text: str) -> Task:
    (tmp_path / "mine.py").write_text(BASE + text)
    return load_task(str(tmp_path / "mine.py"), {}, None)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("def configure_optimizers(): pass", "optimizer(model, lr)"),
        ("def training_step(batch, index): pass", "loss(outputs, batch)"),
        ("def validation_step(batch, index): pass", "score(outputs, batch)"),
        ("def metrics(outputs): pass", "score(outputs, batch)"),
        ("def compute_metrics(outputs): pass", "score(outputs, batch)"),
        ("def collate_fn(samples): pass", "collate(samples)"),
        ("def lr_scheduler(optimizer): pass", "schedule(step, steps)"),
        ("def on_train_epoch_start(): pass", "on_epoch(epoch, epochs)"),
        ("def on_train_batch_start(batch): pass", "on_step(step, steps)"),
        ("def optimiser(model, lr): pass", "optimizer(model, lr)"),
        ("def shedule(step, steps): pass", "schedule(step, steps)"),
        ("criterion = nn.CrossEntropyLoss()", "loss(outputs, batch)"),
        ("def loss_fn(outputs, targets): pass", "loss(outputs, batch)"),
    ],
)
def test_what_other_tools_call_a_hook_is_asked_about(tmp_path: Path, line: str, meant: str) -> None:
    with pytest.raises(RunFailed, match="did you mean") as error:
        load(tmp_path, line)
    assert meant in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "def accuracy(outputs): return 1.0\n" + SCORE,
        "def collate_fn(samples): pass\ndef _loader(): return collate_fn\ndef collate(samples): return _loader()(samples)",
        "criterion = nn.MSELoss()\ndef loss(outputs, batch): return criterion(outputs, batch[1])",
        "def loss_fn(a, b): return (a - b).mean()\nclass M:\n  def go(self): return loss_fn\ndef forward(model, batch): return M().go()",
        "def predict(x): return x",
        "def steps(): return 3",
    ],
)
def test_a_function_that_the_task_uses_itself_is_left_alone(tmp_path: Path, text: str) -> None:
    load(tmp_path, text)


def test_what_only_a_main_uses_is_dropped_and_so_refused(tmp_path: Path) -> None:
    text = "def training_step(x): pass\ndef main(): training_step(1)\nif __name__ == '__main__':\n    main()\n"
    with pytest.raises(RunFailed, match="training_step"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("def optimizer(parameters): pass", "optimizer(model, lr)"),
        ("def optimizer(net, rate): pass", "optimizer(model, lr)"),
        ("def schedule(epoch): pass", "schedule(step, steps) or schedule(optimizer, steps)"),
        ("def on_step(number): pass", "on_step(step, steps) or on_step(model, step, steps)"),
        ("optimizer = 'adam'", "is a str"),
        ("def step(model, batch, optimizers): pass", "not optimizers"),
        ("def optimizers(model, lr): pass", "not step"),
    ],
)
def test_a_hook_of_another_form_is_refused(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(RunFailed) as error:
        load(tmp_path, line)
    assert words in str(error.value)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(RunFailed) as error:
        load(tmp_path, "def schedule(epoch): pass\ndef configure_optimizers(): pass")
    assert "schedule(epoch)" in str(error.value) and "configure_optimizers" in str(error.value)


def test_a_common_word_for_something_else_is_named_and_not_called(tmp_path: Path) -> None:
    task = load(tmp_path, "def step(): pass\ndef augment(image): pass\nunits = 16")
    assert task.ignored == ("augment(image)", "step()")
    assert task.defines == []


def test_a_criterion_gets_the_targets(tmp_path: Path) -> None:
    task = load(tmp_path, "loss = nn.MSELoss()")
    outputs, targets = torch.ones(4, 1), torch.zeros(4, 1)
    assert float(task.loss(outputs, (torch.zeros(4, 2), targets))) == 1.0
    assert task.loss_module is None, "nothing in it is trained"


LEARNED = """
class Temperature(nn.Module):
    def __init__(self):
        super().__init__()
        self.log = nn.Parameter(torch.zeros(()))
    def forward(self, outputs, batch):
        return ((outputs - batch[1]) ** 2).mean() * torch.exp(-self.log) + self.log
loss = Temperature()
"""


def test_the_parameters_of_a_loss_are_trained_and_saved_with_the_models(tmp_path: Path) -> None:
    model = load(tmp_path, LEARNED).build_model()
    assert [name for name, _ in model.named_parameters()] == ["weight", "bias", "loss_module.log"]
    assert "loss_module.log" in model.state_dict()


def test_a_loss_that_the_model_holds_is_not_added_again(tmp_path: Path) -> None:
    own = LEARNED + "\ndef model():\n    made = nn.Linear(2, 1)\n    made.mine = loss\n    return made\n"
    assert [name for name, _ in load(tmp_path, own).build_model().named_parameters()] == ["weight", "bias", "mine.log"]
