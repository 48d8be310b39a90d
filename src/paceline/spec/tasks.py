"""The built-in tasks as the parent knows them: names, parameters, defaults, and what rules must know of each. Their models and data
live in `worker/tasks/`. No other code depends on one of them; helps and examples name some."""

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
    tensor_plan: bool = False  # it says how its layers are cut over ranks (sharding=tensor)
    tables: bool = False  # it has embedding tables (sharding=embedding)
    # Parameters with a consequence, by name; "" where there is none.
    sparse_when: str = ""  # true: gradients of its tables are sparse
    branches_when: str = (
        ""  # true: its model decides by a computed number what comes next, which no single graph can hold
    )
    cut_by: tuple[str, ...] = ()  # sizes that sharding=tensor cuts into equal pieces; the first says what a piece is

    def has_sparse(self, params: Mapping[str, Any]) -> bool:
        return params.get(self.sparse_when) is True

    def branches(self, params: Mapping[str, Any]) -> bool:
        return params.get(self.branches_when) is True

    def cut_sizes(self, params: Mapping[str, Any]) -> list[int]:
        usual = {param.name: param.default for param in self.params}
        return [int(params.get(name) or usual[name]) for name in self.cut_by]


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
                    Param("early_exit", "bool", False, "true: a layer applied until the model is sure, by a Python if"),
                ),
                branches_when="early_exit",
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
            TaskEntry(
                name="cifar-cnn",
                about="three blocks convolution - BatchNorm - ReLU - pool on CIFAR-10, 620,810 parameters (report E); "
                "unset: 1,000 + 400 real images that ship with Paceline; data=FOLDER: the full set",
                target="paceline.worker.tasks.cifar:CifarCNN",
                params=(
                    Param("augmented", "bool", True, "training images shifted, flipped, turned, their colours changed"),
                ),
                defaults=MappingProxyType(
                    {
                        "batch": 32,
                        "test_batch": 500,
                        "optimizer": "adamw",
                        "lr": 1e-3,
                        "weight_decay": 0.05,
                        "schedule": "onecycle",
                        "epochs": 15,
                    }
                ),
            ),
            TaskEntry(
                name="conv-stack",
                about=f"equal convolutions in a row on MNIST, 12,650 parameters (report E); {_MNIST}",
                target="paceline.worker.tasks.conv_stack:ConvStack",
                params=(
                    Param("layers", "int", 2, "convolution + ReLU layers after the first"),
                    Param("channels", "int", 16, "channels of each of them"),
                    Param("shared", "bool", False, "true: one layer applied that many times, as in the report"),
                ),
                defaults=MappingProxyType(
                    {"batch": 32, "test_batch": 128, "optimizer": "sgd", "lr": 0.01, "epochs": 1}
                ),
            ),
            TaskEntry(
                name="transformer",
                about="a small GPT on bytes, 470,528 parameters; unset: generated text of 0.65 bits a byte; "
                "data=FOLDER: its .txt files",
                target="paceline.worker.tasks.transformer:Transformer",
                tensor_plan=True,
                tables=True,
                cut_by=("heads", "width"),
                params=(
                    Param("layers", "int", 2, "blocks"),
                    Param("heads", "int", 4, "attention heads of a block"),
                    Param("width", "int", 128, "numbers that stand for a byte, a multiple of heads"),
                    Param("context", "int", 64, "bytes a prediction can look back on"),
                    Param("num_train", "int", 4_000, "training windows of context + 1 bytes"),
                    Param("num_test", "int", 500, "test windows"),
                    Param(
                        "ragged",
                        "bool",
                        False,
                        "true: windows of 8 bytes up to context, each batch padded to its longest",
                    ),
                ),
                defaults=MappingProxyType({"batch": 32, "test_batch": 128, "lr": 1e-3, "epochs": 3}),
            ),
            TaskEntry(
                name="recommender",
                about="embedding tables and a small network on generated clicks, 68,546 parameters; at best 89 % accurate",
                target="paceline.worker.tasks.recommender:Recommender",
                tables=True,
                sparse_when="sparse",
                params=(
                    Param("tables", "int", 4, "embedding tables, one for each id of a sample"),
                    Param("rows", "int", 1_000, "rows of each table"),
                    Param("dim", "int", 16, "numbers in a row"),
                    Param("hidden", "int", 64, "width of the hidden layer"),
                    Param("sparse", "bool", False, "true: gradients hold the rows a batch used, nothing else"),
                    Param("num_train", "int", 20_000, "generated training samples"),
                    Param("num_test", "int", 4_000, "generated test samples"),
                ),
                defaults=MappingProxyType({"batch": 32, "test_batch": 500, "lr": 1e-3, "epochs": 3}),
            ),
        )
    }
)

# A user's own task: what rules need of it, a `describe` job finds.
_OWN = TaskEntry(name="", about="a user's own", target="", accuracy=False)


def known_task(task: str) -> TaskEntry:
    """What is known of a task by its name alone."""
    return BUILTIN.get(task, _OWN)
