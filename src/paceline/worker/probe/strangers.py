"""Parameters that forward or loss uses and the model does not hold: no optimizer would train them, and no figure would show it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.probe.subject import Places, Subject
from paceline.worker.tasks.returned import loss_terms
from paceline.worker.tasks.task import Task


def refuse_strangers(subject: Subject, places: Places) -> None:
    """Those that are the same objects when the loss is computed again: what it makes anew each time is no parameter."""
    first, second = _leaves(subject, places), _leaves(subject, places)  # both are held: an id may be used again
    again = {id(leaf) for leaf in second}
    held = {id(parameter) for parameter in subject.model.parameters()}
    strange = [leaf for leaf in first if id(leaf) in again and id(leaf) not in held]
    if not strange:
        return
    task, num = subject.task, sum(leaf.numel() for leaf in strange)
    owner = _owner(task, strange[0])
    name = owner or f"a tensor of shape {list(strange[0].shape)}"
    way = (
        f"attach it to the model (model.{owner} = {owner} in model()) to train them, or freeze them ({owner}.requires_grad_(False))"
        if owner
        else "make it a parameter of the model to train it, or freeze it (requires_grad=False)"
    )
    raise RunFailed(
        f"{task.name}: forward or loss uses {num} parameters of {name}, which model() does not hold, so no optimizer would train them: "
        f"{way}",
        kind="task",
    )


def _leaves(subject: Subject, places: Places) -> list[torch.Tensor]:
    """That get a gradient from the loss of these samples."""

    def what(outputs: Any, batch: Any) -> list[torch.Tensor]:
        task = subject.task
        forms = loss_terms(task.loss(outputs, batch), task.verdict, name=task.name)
        return list(_reached([torch.as_tensor(form.value).grad_fn for form in forms.values()]))

    return subject.compute(places, what, training=True)


def _reached(nodes: list[Any]) -> Iterator[torch.Tensor]:
    queue, done = list(nodes), set[Any]()
    while queue:
        node = queue.pop()
        if node is None or node in done:
            continue
        done.add(node)
        if isinstance(variable := getattr(node, "variable", None), torch.Tensor):
            yield variable
        queue += [following for following, _ in node.next_functions]


def _owner(task: Task, parameter: torch.Tensor) -> str | None:
    """What the file, or the task's object, calls the module that holds it."""
    homes = [vars(module) for module in list(sys.modules.values()) if _is_file(module, task.source)]
    made = getattr(task.model, "__self__", None)
    homes += [vars(made)] if hasattr(made, "__dict__") else []
    for home in homes:
        for name, value in list(home.items()):
            if value is parameter or (
                isinstance(value, torch.nn.Module) and any(p is parameter for p in value.parameters())
            ):
                return name
    return None


def _is_file(module: Any, source: Path | None) -> bool:
    file = getattr(module, "__file__", None)
    return source is not None and isinstance(file, str) and Path(file) == source
