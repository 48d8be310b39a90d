"""The loop that a user would have written for a task, as short as it can be: no ranks, no micro-batches, no graph. What Paceline computes
is compared with this. It shares nothing with the product but the task's file, its seeds and the order of samples."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from paceline.spec.run import Spec
from paceline.worker.tasks.forms import Form
from paceline.worker.tasks.hooks import call
from paceline.worker.tasks.load import load_task
from paceline.worker.tasks.order import epoch_order, sample_keys
from paceline.worker.tasks.task import Task, no_score
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.world.seed import RandomStreams, seed_everything

RULES: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}


def doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {name: doubled(item) for name, item in value.items()}
    return type(value)(map(doubled, value)) if isinstance(value, tuple | list) else value


def number(value: Any) -> Any:
    """Of what a loss or a score returned, as its documented meaning is."""
    if isinstance(value, Form):
        return _quotient(value.value, value.count) if value.kind == "ratio" else value.value
    if isinstance(value, tuple | list):
        return _quotient(*value)
    return sum(number(part) for part in value.values()) if isinstance(value, Mapping) else value


def _quotient(total: Any, count: Any) -> Any:
    return total / count if isinstance(total, torch.Tensor) and total.requires_grad else float(total) / float(count)


def tensor_of(part: Any) -> torch.Tensor:
    """Of a tensor, an array, a frame or a column."""
    return part if isinstance(part, torch.Tensor) else torch.as_tensor(np.array(part))


class Data:
    def __init__(self, given: Any, task: Task, seed: int) -> None:
        self.collate = task.collate or default_collate
        if isinstance(given, DataLoader):
            self.collate = given.collate_fn
            given = given.dataset
        self.stream = given if isinstance(given, IterableDataset) else None
        self.given, self.seed = given, seed
        self.begin(0)

    def begin(self, epoch: int) -> None:
        """A stream draws from random numbers of the run and the epoch."""
        if self.stream is not None:
            (key,) = sample_keys(np.zeros(1, dtype=np.int64), seed=self.seed, epoch=epoch)
            with RandomStreams(int(key) % 2**32):
                self.given = list(self.stream)

    def __len__(self) -> int:
        if isinstance(self.given, dict):
            return len(self.given["x"])
        return len(self.given[0]) if isinstance(self.given, tuple) else len(self.given)

    def batch(self, ids: Any) -> Any:
        if isinstance(self.given, dict):
            named = self.given.items()
            return doubled({name: torch.as_tensor(np.asarray(column))[torch.as_tensor(ids)] for name, column in named})
        if isinstance(self.given, tuple):
            return doubled(tuple(tensor_of(part)[torch.as_tensor(ids)] for part in self.given))
        return doubled(self.collate([self.given[int(index)] for index in ids]))


def plain(path: str, spec: Spec) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Weights after the run, and the scores of the test set."""
    seed_everything(spec.seed)
    task = load_task(path, spec.params, None)
    data = []
    for load in (task.train_data, task.test_data):
        seed_everything(spec.seed)
        data.append(Data(load(), task, spec.seed))
    train, test = data
    seed_everything(spec.seed)
    model = task.build_model().double()
    seed_everything(spec.seed)
    _train(task, model, train, spec)
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}, _scores(task, model, test)


def _train(task: Task, model: Any, train: Data, spec: Spec) -> None:
    made: Any = (
        (task.optimizers or task.optimizer)(model, spec.lr)  # pyright: ignore[reportOptionalCall]
        if spec.optimizer == "task"
        else RULES[spec.optimizer]([p for p in model.parameters() if p.requires_grad], lr=spec.lr)
    )
    several = made if isinstance(made, dict) else {"": made}
    scheduler = None
    if task.schedule is not None and "optimizer" in inspect.signature(task.schedule).parameters:
        scheduler = task.schedule(made, spec.steps)
    rates = [(group, group["lr"]) for one in several.values() for group in one.param_groups]
    model.train()
    done, epoch = 0, 0
    assert spec.steps is not None
    while done < spec.steps:
        train.begin(epoch)
        if task.on_epoch is not None:
            call(task.on_epoch, model=model, epoch=epoch, epochs=_epochs(len(train), spec))
        order = epoch_order(len(train), seed=spec.seed, epoch=epoch, shuffle=spec.shuffle)
        for start in range(0, len(order), spec.batch):
            if done == spec.steps:
                break
            if task.on_step is not None:
                call(task.on_step, model=model, step=done, steps=spec.steps)
            for group, rate in rates if scheduler is None else ():
                group["lr"] = rate * (task.schedule(done, spec.steps) if task.schedule is not None else 1.0)
            ids = order[start : start + spec.batch]
            batch = train.batch(ids)
            if task.augment is not None:
                batch = task.augment(batch, torch.from_numpy(sample_keys(ids, seed=spec.seed, epoch=epoch)))
            if task.step is not None:
                call(task.step, model=model, batch=batch, optimizers=several)
            else:
                made.zero_grad()
                _loss(task, model, batch).backward()
                made.step()
                if scheduler is not None:
                    scheduler.step()
            done += 1
        epoch += 1


def _epochs(num: int, spec: Spec) -> int:
    assert spec.steps is not None
    return -(-spec.steps // -(-num // spec.batch))


def _loss(task: Task, model: Any, batch: Any) -> Any:
    if task.loss is usual_loss and _by_name(task, batch):  # as in the examples of transformers
        return model(**batch).loss
    return number(task.loss(task.forward(model, batch), batch))


def _scores(task: Task, model: Any, test: Data) -> dict[str, float]:
    """From the whole test set as one batch; a sum over samples is recorded per sample."""
    model.eval()
    if not task.evaluates:
        return {}
    num = len(test)
    found = _of_batch(task, model, test.batch(range(num)))
    if task.score is no_score or task.score_of is not None or task.score is usual_score:
        return {name: float(number(value)) for name, value in found.items()}
    parts = [_of_batch(task, model, test.batch(ids)) for ids in (range(num // 3), range(num // 3, num))]
    return {name: _per_sample(value, [part[name] for part in parts], num) for name, value in found.items()}


def _of_batch(task: Task, model: Any, batch: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with torch.no_grad():
        if task.score is usual_score and _by_name(task, batch):
            return _of_labels(model(**batch), batch)
        outputs = task.forward(model, batch)
        if task.score is not no_score:
            value = task.score(outputs, batch)
            value = task.score_of(value) if task.score_of is not None else value
            found |= value if isinstance(value, Mapping) else {"score": value}
        if task.score_all is not None:
            value = task.score_all(outputs, batch["labels"] if isinstance(batch, Mapping) else batch[-1])
            found |= value if isinstance(value, Mapping) else {"score": value}
    return {str(name): value for name, value in found.items()}


def _by_name(task: Task, batch: Any) -> bool:
    return task.forward is usual_forward and isinstance(batch, Mapping)


def _of_labels(outputs: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    """The accuracy of a classifier; a language model's would need a shift."""
    labels = batch["labels"]
    return {"accuracy": (outputs.logits.argmax(dim=1) == labels).double().mean()} if labels.dim() == 1 else {}


def _per_sample(value: Any, parts: list[Any], num: int) -> float:
    if isinstance(value, Form | tuple | list):
        is_sum = isinstance(value, Form) and value.kind == "total"
    else:
        is_sum = abs(float(value) - sum(map(float, parts))) < 1e-9 * max(1.0, abs(float(value)))
    return float(number(value)) / (num if is_sum else 1)
