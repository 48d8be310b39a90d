"""The functions that a task may define, and what becomes of one that merely looks like it: it is refused, because a function that nobody
calls is the kind of mistake that shows in no figure."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.tasks.reached import reached

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """`ways`: the names its parameters may have; none given, any that can be called. `common`: a word that a file may
    well use for something of its own, so a function with another number of parameters is left alone, with a warning."""

    name: str
    ways: tuple[Names, ...] = ()
    common: bool = False

    @property
    def signature(self) -> str:
        return " or ".join(f"{self.name}({', '.join(names)})" for names in self.ways)


REQUIRED = ("model", "train_data", "test_data")

HOOKS: Mapping[str, Hook] = MappingProxyType(
    {
        row.name: row
        for row in (
            Hook(name="forward"),
            Hook(name="loss"),
            Hook(name="score"),
            Hook(name="score_all"),
            Hook(name="score_of"),
            Hook(name="collate"),
            Hook(name="augment", ways=(("batch", "keys"),), common=True),
            Hook(name="units", ways=(("model",),), common=True),
            Hook(name="tensor_plan", ways=(("model",),), common=True),
            Hook(name="optimizer", ways=(("model", "lr"),)),
            Hook(name="own_rate", ways=(("model",),), common=True),
            Hook(name="optimizers", ways=(("model", "lr"),)),
            Hook(name="schedule", ways=(("step", "steps"), ("optimizer", "steps"), ("optimizer", "epochs"))),
            Hook(name="step", ways=(("model", "batch", "optimizers"), ("batch", "optimizers")), common=True),
            Hook(name="on_step", ways=(("step", "steps"), ("model", "step", "steps"))),
            Hook(name="on_epoch", ways=(("epoch", "epochs"), ("model", "epoch", "epochs"))),
        )
    }
)

# What other tools call their hooks, what ours is, and which of ours do that: one of them is enough.
_LOSS, _SCORE = "loss(outputs, batch)", "score(outputs, batch)"
_OPTIMIZER, _SCHEDULE = "optimizer(model, lr)", "schedule(step, steps)"
_ELSEWHERE: Mapping[str, tuple[str, Names]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("configure_optimizers", "configure_optimizer", "create_optimizer", "make_optimizer", "get_optimizer", "build_optimizer"),
            (_OPTIMIZER, ("optimizer", "optimizers")),
        ),
        **dict.fromkeys(
            ("lr_scheduler", "scheduler", "lr_schedule", "get_scheduler", "configure_scheduler", "create_scheduler", "lr_lambda",
             "adjust_learning_rate"),
            (_SCHEDULE, ("schedule",)),
        ),
        **dict.fromkeys(
            ("training_step", "train_step", "compute_loss", "loss_fn", "loss_func", "loss_function", "criterion", "get_loss", "batch_loss",
             "calculate_loss"),
            (f"{_LOSS}, or step(model, batch, optimizers) for several optimizers", ("loss", "step")),
        ),
        **dict.fromkeys(
            ("metrics", "metric", "compute_metrics", "compute_metric", "validation_step", "valid_step", "val_step", "test_step",
             "eval_step", "evaluate", "validate", "accuracy", "score_fn", "on_validation_epoch_end", "on_test_epoch_end",
             "validation_epoch_end", "evaluation_step"),
            (f"{_SCORE}, or score_all(outputs, targets) for the whole test set", ("score", "score_all", "score_of")),
        ),
        **dict.fromkeys(("collate_fn", "collate_batch", "collator", "data_collator"), ("collate(samples)", ("collate",))),
        **dict.fromkeys(("forward_fn", "forward_pass", "predict_step"), ("forward(model, batch)", ("forward",))),
        **dict.fromkeys(
            ("on_train_batch_start", "on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end", "on_batch_start",
             "on_before_optimizer_step", "on_train_step", "on_step_begin", "on_step_end", "optimizer_step"),
            ("on_step(step, steps)", ("on_step", "step")),
        ),
        **dict.fromkeys(
            ("on_epoch_start", "on_epoch_begin", "on_epoch_end", "on_train_epoch_start", "on_train_epoch_end", "on_train_start",
             "on_train_begin", "on_train_end", "on_fit_start"),
            ("on_epoch(epoch, epochs)", ("on_epoch",)),
        ),
        **dict.fromkeys(("batch_transform", "on_after_batch_transfer"), ("augment(batch, keys)", ("augment",))),
    }
)  # fmt: skip
_CLOSE = 0.86  # `optimiser`, `schedul`, `on_steps`; not `steps`, `losses` of a few letters


def parameters_of(function: Any) -> Names:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a builtin, or no function at all
        return ()


def call(function: Any, **given: Any) -> Any:
    """With those of the values that it has parameters for."""
    return function(**{name: given[name] for name in parameters_of(function)})


def hooks_of(home: Any, task: str, source: Path | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The functions that the task defines, by name; and those with a hook's name that are meant for something else. All
    that is wrong is said at once."""
    found: dict[str, Any] = {}
    ignored: list[str] = []
    wrong: list[str] = []
    for hook in HOOKS.values():
        function = getattr(home, hook.name, None)
        if function is None or (hook.common and not callable(function)):
            continue
        if not callable(function):
            wrong.append(
                f"{task}: {hook.name} is a {type(function).__name__}, and a task's {hook.name} is a function"
                f"{': ' + hook.signature if hook.ways else ''}; define it, or use another name"
            )
        elif not hook.ways or parameters_of(function) in hook.ways:
            found[hook.name] = function
        elif hook.common and isinstance(home, ModuleType) and _differs(function, hook):
            ignored.append(f"{hook.name}({', '.join(parameters_of(function))})")
        else:
            wrong.append(
                f"{task}: {hook.name}({', '.join(parameters_of(function))}): its parameters must be called as in "
                f"{hook.signature}, or it must have another name"
            )
    wrong += [*_foreign(home, task, found, source), *_together(task, found)]
    if wrong:
        raise RunFailed("; ".join(wrong), kind="task")
    return found, tuple(ignored)


def _differs(function: Any, hook: Hook) -> bool:
    """By the number of its parameters: one with the right number and other names could be either."""
    return len(parameters_of(function)) not in map(len, hook.ways)


def _foreign(home: Any, task: str, found: Mapping[str, Any], source: Path | None) -> Iterator[str]:
    """Functions that look like a hook, where ours is not defined and nothing that Paceline calls uses them."""
    used: set[str] | None = None
    for name in _own_functions(home):
        if name in HOOKS or name in REQUIRED:
            continue
        meant, ours = _ELSEWHERE.get(name, ("", ()))
        if not meant and (close := get_close_matches(name, [hook for hook in HOOKS if len(hook) > 5], 1, _CLOSE)):
            meant, ours = HOOKS[close[0]].signature or close[0], (close[0],)
        if not meant or any(hook in found for hook in ours):
            continue
        if used is None:
            used = reached(source, [*REQUIRED, *found, "__init__"]) if source is not None else set()
        if name not in used:
            yield (
                f"{task}: it defines {name}, which nothing here ever calls; did you mean {meant}? Define that, or give {name} a name "
                "that begins with an underscore"
            )


def _own_functions(home: Any) -> list[str]:
    """Public, defined in this very file or class: what is imported is there to be used by something else."""
    if isinstance(home, ModuleType):
        return [
            name for name, value in vars(home).items()
            if not name.startswith("_") and _is_function(value) and getattr(value, "__module__", home.__name__) == home.__name__
        ] + [name for name, value in vars(home).items() if isinstance(value, torch.nn.Module) and name in _ELSEWHERE]  # fmt: skip
    kinds = [kind for kind in type(home).__mro__ if kind is not object]
    return [
        name for kind in kinds for name, value in vars(kind).items() if not name.startswith("_") and _is_function(value)
    ]


def _is_function(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, staticmethod | classmethod)


def _together(task: str, found: Mapping[str, Any]) -> Iterator[str]:
    """Hooks that need, or exclude, each other."""
    if "optimizer" in found and "optimizers" in found:
        yield f"{task}: it defines optimizer and optimizers; keep one of them"
    if ("step" in found) != ("optimizers" in found):
        has, lacks = ("step", "optimizers") if "step" in found else ("optimizers", "step")
        yield (
            f"{task}: it defines {has} and not {lacks}: several optimizers are used by a step of the task's own; define "
            f"{HOOKS[lacks].signature} as well"
        )
