"""Parameters that forward or loss uses and the model does not hold: no optimizer would train them, and no figure would show it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.probe.subject import Subject
from paceline.worker.tasks.task import Task


def refuse_strangers(subject: Subject, first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> None:
    """`first`, `second`: the leaves that a gradient reaches, of two looks. Those that are the same objects in both: what is made anew
    each time is no parameter. Both are held meanwhile: an id may be used again."""
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
