"""The blocks a model is made of: what FSDP fetches at a time, and what recomputation keeps the inputs of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import nn

from paceline.base.errors import RunFailed
from paceline.worker.tasks.task import Task, users_code

_LISTS = (nn.ModuleList, nn.ModuleDict)  # containers that are never called themselves
# What a container's elements are called by, where nobody wrote another: of a child that has it, nobody knows whether it is called
# itself or gone through (`for layer in self.layers`). Its elements are called either way.
_NOT_WRITTEN = (nn.Sequential.forward, nn.Module.forward)


def units(task: Task, model: nn.Module) -> list[nn.Module]:
    """The modules the task names; else the blocks in its lists and sequences, and children with submodules of their
    own; else the whole model as one unit. Each module is listed once, even where the model calls it several times."""
    if task.units is None:
        return _once(_blocks(model)) or [model]
    with users_code(f"{task.name}: units(model)", task.source):
        named = list(task.units(model))
    inside = {id(module) for module in model.modules()}
    wrong = [module for module in named if id(module) not in inside or isinstance(module, _LISTS)]
    if not named or wrong:
        not_called = f"; {type(wrong[0]).__name__} is none that is called" if wrong else ""
        raise RunFailed(
            f"{task.name}: units(model) must return modules of the model that are called, at least one{not_called}",
            kind="task",
        )
    return _once(named)


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    """The elements of lists are blocks, and so is a child that has children. A child that only holds blocks is
    searched, and is none itself. A block must be called as a module, because FSDP fetches its parameters in that
    call."""
    holder = isinstance(module, (*_LISTS, nn.Sequential))
    for child in module.children():
        if isinstance(module, nn.ModuleList) and not isinstance(child, _LISTS):
            yield from [child] if _trains(child) else []
        elif isinstance(child, _LISTS) or _holds_blocks(child):
            yield from _blocks(child)
        elif _has_children(child) and _trains(child) and (holder or type(child).forward not in _NOT_WRITTEN):
            yield child


def _holds_blocks(module: nn.Module) -> bool:
    """A list somewhere inside, or a sequence of modules that have children themselves (a ResNet's layers)."""
    return any(
        isinstance(inner, nn.ModuleList) or (isinstance(inner, nn.Sequential) and any(map(_has_children, inner)))
        for inner in module.modules()
    )


def _has_children(module: nn.Module) -> bool:
    return next(module.children(), None) is not None


def _trains(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _once(modules: Iterable[nn.Module]) -> list[nn.Module]:
    return list({id(module): module for module in modules}.values())
