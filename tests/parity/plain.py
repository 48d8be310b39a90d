"""The loop that a user would have written for a task, as short as it can be: no ranks, no micro-batches, no graph. What Paceline computes
is compared with this. It shares nothing with the product but the task's file, its seeds and the order of samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset, default_collate

from paceline.spec.run import Spec
from paceline.worker.tasks.forms import Form
from paceline.worker.tasks.hooks import call
from paceline.worker.tasks.load import load_task
from paceline.worker.tasks.order import epoch_order
from paceline.worker.tasks.task import Task, no_score, usual_loss, usual_score
from paceline.worker.world.seed import seed_everything

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
        return value.number
    if isinstance(value, tuple | list):
        return value[0] / value[1]
    return sum(number(part) for part in value.values()) if isinstance(value, Mapping) else value


class Data:
    def __init__(self, given: Any, task: Task) -> None:
        self.given = list(given) if isinstance(given, IterableDataset) else given
        self.collate = task.collate or default_collate

    def __len__(self) -> int:
        return len(self.given[0]) if isinstance(self.given, tuple) else len(self.given)

    def batch(self, ids: Any) -> Any:
        if isinstance(self.given, tuple):
            return doubled(tuple(torch.as_tensor(tensor)[torch.as_tensor(ids)] for tensor in self.given))
        return doubled(self.collate([self.given[int(index)] for index in ids]))


def plain(path: str, spec: Spec) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Weights after the run, and the scores of the test set."""
    seed_everything(spec.seed)
    task = load_task(path, spec.params, None)
    data = []
    for load in (task.train_data, task.test_data):
        seed_everything(spec.seed)
        data.append(Data(load(), task))
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
    rates = [(group, group["lr"]) for one in several.values() for group in one.param_groups]
    model.train()
    done, epoch = 0, 0
    assert spec.steps is not None
    while done < spec.steps:
        order = epoch_order(len(train), seed=spec.seed, epoch=epoch, shuffle=spec.shuffle)
        for start in range(0, len(order), spec.batch):
            if done == spec.steps:
                break
            if task.on_step is not None:
                call(task.on_step, model=model, step=done, steps=spec.steps)
            for group, rate in rates:
                group["lr"] = rate * (task.schedule(done, spec.steps) if task.schedule is not None else 1.0)
            batch = train.batch(order[start : start + spec.batch])
            if task.step is not None:
                call(task.step, model=model, batch=batch, optimizers=several)
            else:
                made.zero_grad()
                number(task.loss(task.forward(model, batch), batch)).backward()
                made.step()
            done += 1
        epoch += 1


def _scores(task: Task, model: Any, test: Data) -> dict[str, float]:
    """From the whole test set as one batch."""
    model.eval()
    if not task.evaluates:
        return {}
    batch = test.batch(range(len(test)))
    with torch.no_grad():
        outputs = task.forward(model, batch)
        found: dict[str, Any] = {}
        if task.score is not no_score:
            value = task.score(outputs, batch)
            if task.score_of is not None:
                value = task.score_of(value)
            found |= value if isinstance(value, Mapping) else {"score": value}
        if task.score_all is not None:
            value = task.score_all(outputs, batch[-1])
            found |= value if isinstance(value, Mapping) else {"score": value}
        return {str(name): float(per_sample(item, len(test))) for name, item in found.items()}


def per_sample(value: Any, num: int) -> Any:
    """A total is recorded per sample."""
    return value.value / num if isinstance(value, Form) and value.kind == "total" else number(value)


def usual(task: Task) -> bool:
    return task.loss is usual_loss and task.score is usual_score
