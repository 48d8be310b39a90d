"""The blocks a model is made of: what FSDP fetches at a time, and what recomputation keeps the inputs of."""

from __future__ import annotations

import torch

from paceline.base.errors import RunFailed
from paceline.worker.tasks.task import Task, users_code


def units(task: Task, model: torch.nn.Module) -> list[torch.nn.Module]:
    """What the task names; else the elements of its lists and of its sequences of blocks; else the model itself, as one."""
    if task.units is not None:
        with users_code(f"{task.name}: units(model)", task.source):
            named = list(task.units(model))
        inside = {id(module) for module in model.modules()}
        if not named or any(id(module) not in inside for module in named):
            raise RunFailed(f"{task.name}: units(model) must return modules of the model, at least one", kind="task")
        return named
    found = _blocks(model)
    return found or [model]


def _blocks(module: torch.nn.Module) -> list[torch.nn.Module]:
    found: list[torch.nn.Module] = []
    for child in module.children():
        if isinstance(child, torch.nn.ModuleList):
            found += [item for item in child if next(item.parameters(), None) is not None]
        elif next(child.children(), None) is not None and next(child.parameters(), None) is not None:
            found += _blocks(child) if isinstance(child, torch.nn.ModuleDict) else [child]
    return found
