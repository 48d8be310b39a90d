"""From a name or a file to a Task: import it, read its parameters, bind their values. The only place a user's file is imported."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from paceline.base.errors import BadInput, RunFailed
from paceline.base.names import unknown
from paceline.spec.tasks import BUILTIN, Param, task_file
from paceline.spec.verdict import Verdict
from paceline.worker.tasks import lightning_module
from paceline.worker.tasks.hooks import REQUIRED, hooks_of
from paceline.worker.tasks.loss_module import with_loss_module
from paceline.worker.tasks.task import Task, no_loss, no_score, users_code
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score

_MISSING = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Definition:
    """A class or module with the task's functions, before its parameters have values."""

    name: str
    source: Path | None
    made: type[Any] | ModuleType
    params: tuple[Param, ...]
    takes_data: bool
    defaults: dict[str, Any]

    def build(self, values: Mapping[str, Any], data: str | None) -> Task:
        given = {**values, "data": data} if self.takes_data else dict(values)
        if isinstance(self.made, ModuleType):
            calls = {name: _bound(getattr(self.made, name), given) for name in REQUIRED}
            home: Any = self.made
        else:
            with users_code(f"{self.name}: {self.made.__name__}()", self.source):
                home = self.made(**given)
            calls = {name: getattr(home, name) for name in REQUIRED}
        hooks, ignored = hooks_of(home, self.name, self.source)
        better = getattr(home, "better", None)
        if better not in (None, "higher", "lower"):
            raise RunFailed(f"{self.name}: better is {better!r}; it must be 'higher' or 'lower'", kind="task")
        couples = getattr(home, "couples", None)
        if couples not in (None, "batch"):
            raise RunFailed(f"{self.name}: couples is {couples!r}; it can only be 'batch'", kind="task")
        return Task(
            name=self.name,
            source=self.source,
            better=better,
            couples_samples=couples is not None,
            ignored=ignored,
            **calls,
            **{**_usual(hooks), **with_loss_module(hooks)},
        )


def _usual(hooks: Mapping[str, Any]) -> dict[str, Any]:
    """Of functions that the task does not define. A task that makes its own steps need have no loss of its own."""
    scored = {"score_all", "step"} & set(hooks)
    loss = no_loss if "step" in hooks else usual_loss
    return {"forward": usual_forward, "loss": loss, "score": no_score if scored else usual_score}


def _bound(function: Callable[..., Any], given: Mapping[str, Any]) -> Callable[[], Any]:
    wanted = {name: given[name] for name in inspect.signature(function).parameters if name in given}
    return lambda: function(**wanted)


_PLAIN = {kind.__name__: kind.__name__ for kind in (int, float, bool, str)}


def _param(name: str, parameter: inspect.Parameter) -> Param:
    """The type is that of the annotation (`int`, `int | None`, `Optional[int]`) or of the default; any other cannot be given as text."""
    hint = parameter.annotation
    text = (
        hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)
    )
    stated = [
        word
        for word in re.split(r"[^A-Za-z_]+", text)
        if word not in ("None", "NoneType", "Optional", "Union", "typing", "")
    ]
    required = parameter.default is _MISSING
    default = None if required else parameter.default
    if hint is not _MISSING and len(stated) == 1:
        kind = _PLAIN.get(stated[0], "other")
    else:
        kind = _PLAIN.get(type(default).__name__, "str" if default is None else "other")
    return Param(name, kind, default if kind != "other" else None, required=required)


def _parameters(made: type[Any] | ModuleType, name: str) -> dict[str, inspect.Parameter]:
    functions = [getattr(made, part) for part in REQUIRED] if isinstance(made, ModuleType) else [made]
    parameters: dict[str, inspect.Parameter] = {}
    for function in functions:
        for key, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                continue
            if key in parameters and parameters[key].default != parameter.default:
                raise RunFailed(f"{name}: parameter {key!r} has two different defaults", kind="task")
            parameters[key] = parameter
    return parameters


def _define(made: type[Any] | ModuleType, name: str, source: Path | None) -> Definition:
    parameters = _parameters(made, name)
    params = tuple(_param(key, parameter) for key, parameter in parameters.items() if key != "data")
    defaults = dict(getattr(made, "defaults", {}) or {})
    return Definition(name, source, made, params, "data" in parameters, defaults)


def _import(path: Path) -> ModuleType:
    # A name of its own for each file: two tasks in one process (paceline.load) must not become one module.
    name = f"paceline_user_task_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInput(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # loader processes and dataclasses look the module up by name
    sys.path.insert(0, str(path.parent))  # the user's own modules beside the file
    with users_code(f"{path.name}: could not be imported", path):
        spec.loader.exec_module(module)
    return module


def _is_task(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in REQUIRED)


def _choose(module: ModuleType, path: Path, wanted: str | None) -> type[Any] | ModuleType:
    classes = {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__
    }
    modules = lightning_module.tasks(classes)
    if wanted in modules:
        return modules[wanted]
    if wanted:
        if wanted not in classes:
            raise BadInput(f"{path.name}: {unknown('class', wanted, classes)}")
        if not _is_task(classes[wanted]):
            raise BadInput(f"{path.name}: class {wanted} has no {_lacking(classes[wanted])}")
        return classes[wanted]
    if _is_task(module):
        return module
    tasks = [value for value in classes.values() if _is_task(value)] or [*modules.values()]
    if len(tasks) == 1:
        return tasks[0]
    if tasks:
        names = ", ".join(f"{path.name}:{task.__name__}" for task in tasks)
        raise BadInput(f"{path.name}: it defines several tasks; say which: {names}")
    raise BadInput(f"{path.name}: no {_lacking(module)} in it; a task defines model(), train_data() and test_data()")


def _lacking(value: Any) -> str:
    return ", ".join(f"{name}()" for name in REQUIRED if not callable(getattr(value, name, None)))


def find(task: str) -> Definition:
    """A built-in name, or path/to/file.py[:Class]."""
    if task in BUILTIN:
        module, _, name = BUILTIN[task].target.partition(":")
        return _define(getattr(importlib.import_module(module), name), task, None)
    name, wanted = task_file(task) or (task, "")
    path = Path(name).resolve()
    module = _import(path)
    return _define(_choose(module, path, wanted or None), path.name, path)


def values_for(params: tuple[Param, ...], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Every parameter with its value, converted to the declared type; one of no plain type keeps the task's own default."""
    return {
        param.name: param.convert(raw[param.name]) if param.name in raw else param.default
        for param in params
        if param.name in raw or param.type != "other"
    }


def load_task(task: str, params: Mapping[str, Any], data: str | None, verdict: Verdict | None = None) -> Task:
    """`verdict`: how its loss and scores recombine, where somebody has looked."""
    built = find(task).build(params, data)
    return built if verdict is None else replace(built, verdict=verdict)
