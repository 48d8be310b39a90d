"""The built-in tasks as the parent knows them: names, parameters, defaults. Their models and data live in `worker/tasks/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

_TYPES = {"int": int, "float": float, "bool": bool, "str": str}
_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def task_file(task: str) -> tuple[str, str] | None:
    """(path, class or "") of a task that is a Python file; None when it can only be a name.

    >>> task_file("my.pyproject/net.py:Wide"), task_file("net.py"), task_file("lenet")
    (('my.pyproject/net.py', 'Wide'), ('net.py', ''), None)
    """
    stem, colon, name = task.rpartition(".py:")
    if colon:
        return f"{stem}.py", name
    return (task, "") if task.endswith(".py") else None


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter a task declares: `hidden=64` on the command line."""

    name: str
    type: str
    default: Any
    about: str = ""
    required: bool = False

    def convert(self, raw: Any) -> Any:
        """The value as the task wants it, or ValueError with a sentence."""
        if self.type == "other":
            raise ValueError(
                f"{self.name}={raw}: the task wants something here that cannot be typed (not a number, true/false or text)"
            )
        if isinstance(raw, bool) or not isinstance(raw, str):
            raw = str(raw)
        if self.type == "bool":
            if raw.lower() not in _TRUE | _FALSE:
                raise ValueError(f"{self.name}={raw}: must be true or false")
            return raw.lower() in _TRUE
        try:
            return _TYPES.get(self.type, str)(raw)
        except ValueError:
            word = {"int": "a whole number", "float": "a number"}[self.type]
            raise ValueError(f"{self.name}={raw}: must be {word}") from None


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """What the parent must know of a task before anything is launched."""

    name: str
    about: str
    target: str  # module:class in the worker wing, imported there only
    params: tuple[Param, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    accuracy: bool = True  # its score is an accuracy: a target above 1 can never be reached


_MNIST = "unset: 10,000 + 2,000 real MNIST images that ship with Paceline; data=FOLDER: the full set"

BUILTIN: Mapping[str, TaskEntry] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            TaskEntry(
                name="features",
                about="MLP 512-32-20 with BatchNorm on feature vectors (report A); without data=FOLDER generated, at best 86 % accurate",
                target="paceline.worker.tasks.features:Features",
                params=(
                    Param("hidden", "int", 32, "width of the hidden layer"),
                    Param("num_train", "int", 60_000, "generated training samples"),
                    Param("num_test", "int", 10_000, "generated test samples"),
                    Param("activation", "str", "relu", "between the layers: relu, tanh, sigmoid or gelu"),
                    Param("loader", "str", "tensors", "tensors: a batch is one copy; dataset: sample by sample"),
                ),
                defaults=MappingProxyType({"batch": 32, "lr": 1e-3, "epochs": 10}),
            ),
            TaskEntry(
                name="mnist-convnet",
                about=f"two small convolutions on MNIST, 4,266 parameters (report B); {_MNIST}",
                target="paceline.worker.tasks.mnist:ConvNet",
                defaults=MappingProxyType({"batch": 32, "test_batch": 128, "lr": 5e-4, "epochs": 3}),
            ),
            TaskEntry(
                name="lenet",
                about=f"LeNet's three convolutions, 50,692 parameters (report D), or all of LeNet-5; {_MNIST}",
                target="paceline.worker.tasks.mnist:LeNet",
                params=(Param("full", "bool", False, "true: LeNet-5 with its two linear layers, 61,706 parameters"),),
                defaults=MappingProxyType({"batch": 32, "test_batch": 128, "lr": 1e-3, "epochs": 3}),
            ),
        )
    }
)
