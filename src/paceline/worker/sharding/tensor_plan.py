"""The task's own answer to how its layers are cut, `tensor_plan(model)`, asked for and looked over before anything is cut."""

from __future__ import annotations

from fnmatch import fnmatch
from typing import Any

import torch
from torch.distributed.tensor.parallel import ParallelStyle

from paceline.base.errors import RunFailed
from paceline.base.names import nearest
from paceline.worker.tasks.task import Task, users_code


def plan_of(task: Task, model: torch.nn.Module) -> dict[str, ParallelStyle]:
    """{module's name: torch's style}. A name that fits no module would be skipped by torch with a warning."""
    if task.tensor_plan is None:
        raise RunFailed(
            f"{task.name}: sharding=tensor needs the task to say how its layers are cut: define tensor_plan(model) that returns "
            "{'name of a module': ColwiseParallel(), ...} with styles of torch.distributed.tensor.parallel (docs/sharding.md has an "
            "example), or use another sharding",
            kind="task",
        )
    with users_code(f"{task.name}: tensor_plan(model)", task.source):
        plan: Any = task.tensor_plan(model)
    if not isinstance(plan, dict) or not plan:
        raise RunFailed(
            f"{task.name}: tensor_plan(model) must return a dict that is not empty, and returned {plan!r:.100}",
            kind="task",
        )
    names = [name for name, _ in model.named_modules()]
    for wanted, style in plan.items():
        if not isinstance(style, ParallelStyle):
            raise RunFailed(
                f"{task.name}: tensor_plan(model) gives {wanted!r} a {type(style).__name__}, not a style of "
                "torch.distributed.tensor.parallel (ColwiseParallel(), RowwiseParallel(), ...)",
                kind="task",
            )
        fits = [name for name in names if _fits(name, str(wanted))]
        if not fits:
            close = nearest(str(wanted), names)
            hint = f"; did you mean {close!r}?" if close else ""
            raise RunFailed(
                f"{task.name}: tensor_plan(model) names {wanted!r}, and the model has no such module{hint}", kind="task"
            )
        _cuttable(task, model, fits, style)
    return plan


def _fits(name: str, wanted: str) -> bool:
    """As torch matches them: part by part, with * and ? inside a part.

    >>> _fits("blocks.0.up", "blocks.*.up"), _fits("blocks.0.up.x", "blocks.*.up")
    (True, False)
    """
    here, there = name.split("."), wanted.split(".")
    return len(here) == len(there) and all(fnmatch(a, b) for a, b in zip(here, there, strict=True))


def _cuttable(task: Task, model: torch.nn.Module, names: list[str], style: ParallelStyle) -> None:
    if type(style).__name__ not in ("ColwiseParallel", "RowwiseParallel"):
        return
    for name in names:
        module = model.get_submodule(name)
        if not isinstance(module, torch.nn.Linear | torch.nn.Embedding):
            raise RunFailed(
                f"{task.name}: tensor_plan(model) cuts {name!r} by {type(style).__name__}, which torch has for nn.Linear and "
                f"nn.Embedding, and it is a {type(module).__name__}",
                kind="task",
            )
