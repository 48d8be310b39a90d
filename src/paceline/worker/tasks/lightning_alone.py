"""A LightningModule without a Trainer: what it logs is kept, what only a Trainer could answer is refused by name. Lightning itself is
imported by the user's file, and never here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch

from paceline.base.errors import RunFailed

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
# Methods of a LightningModule that are called, or that no training calls.
_HONOURED = {
    "forward", "training_step", "validation_step", "test_step", "predict_step", "configure_optimizers", "configure_model",
    "prepare_data", "setup", "teardown", "train_dataloader", "val_dataloader", "test_dataloader", "predict_dataloader",
    "state_dict", "load_state_dict", "on_predict_start", "on_predict_end",
}  # fmt: skip
_ANSWERED_BY_A_TRAINER = (
    "trainer", "current_epoch", "global_step", "global_rank", "local_rank", "logger", "loggers", "fabric", "device_mesh",
)  # fmt: skip
_DONE_BY_A_TRAINER = (
    "optimizers", "lr_schedulers", "manual_backward", "toggle_optimizer", "untoggle_optimizer", "clip_gradients", "all_gather",
)  # fmt: skip
_IN_MULTIPLES = ("mean", torch.mean)  # of what `log(reduce_fx=...)` takes: how Lightning puts batches together


def bases(name: str) -> tuple[type[Any], ...]:
    """Lightning's class of this name, by each of the packages that are loaded: a file that uses one has imported it."""
    loaded = (sys.modules.get(package) for package in _PACKAGES)
    return tuple({found for module in loaded if isinstance(found := getattr(module, name, None), type)})


def base_of(cls: type[Any]) -> type[Any]:
    return next(base for base in (*bases("LightningModule"), *bases("LightningDataModule")) if issubclass(cls, base))


def overridden(cls: type[Any], name: str) -> bool:
    """Whether the user's class, or one it is made of, says this itself."""
    given = base_of(cls).__mro__
    return any(name in vars(own) for own in cls.__mro__ if own not in given)


def check_hooks(cls: type[Any]) -> None:
    """Each method of Lightning that the class replaces is one that is used here; any other would be dropped without a word."""
    base = base_of(cls)
    plain = {*dir(torch.nn.Module), *_HONOURED}
    names = [name for name in dir(base) if not name.startswith("_") and name not in plain]
    if lost := [name for name in names if callable(getattr(base, name)) and overridden(cls, name)]:
        raise RunFailed(
            f"{cls.__name__} defines {', '.join(f'{name}()' for name in lost[:4])}, which Lightning's Trainer would call and Paceline does "
            "not: take it out, do its work in training_step, or write a task of functions (model, train_data, test_data, loss)",
            kind="task",
        )


class Logged:
    """What a step has logged since it began, by name."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def log(self, name: str, value: Any, *_: Any, reduce_fx: Any = "mean", **__: Any) -> None:
        if reduce_fx not in _IN_MULTIPLES:
            raise RunFailed(
                f"self.log({name!r}, reduce_fx={reduce_fx!r}): only means over samples are put together; log a mean",
                kind="task",
            )
        self.values[name] = _number(name, value)

    def log_dict(self, values: Mapping[str, Any], *_: Any, **how: Any) -> None:
        for name, value in values.items():
            self.log(str(name), value, **how)


def _number(name: str, value: Any) -> Any:
    """A metric of torchmetrics says what it computed for this batch, if it was called."""
    if not (hasattr(value, "compute") and hasattr(value, "reset")):
        return value
    found = getattr(value, "_forward_cache", None)
    if not isinstance(found, torch.Tensor):
        raise RunFailed(
            f"self.log({name!r}, a {type(value).__name__}): it was updated and not called, so it has no value for this batch; log what "
            "the call returns: self.log(name, metric(outputs, targets))",
            kind="task",
        )
    return found


_QUESTIONS = (
    "index", "int", "float", "bool", "eq", "ne", "lt", "le", "gt", "ge", "add", "radd", "sub", "rsub", "mul", "rmul", "mod", "floordiv",
    "truediv", "str", "format", "hash",
)  # fmt: skip


def _no_index(*_: Any) -> NoReturn:
    raise RunFailed(
        "a step of the LightningModule uses batch_idx, which is another number at every world size: leave it out",
        kind="task",
    )


def no_index() -> Any:
    """In place of `batch_idx`: a batch that is cut over ranks, or a test set scored in any batches, has no number that means anything."""
    return type("NoIndex", (), {f"__{name}__": _no_index for name in _QUESTIONS})()


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise RunFailed(
            f"{type(self).__name__} uses self.{name}, which only Lightning's Trainer can answer: it is taken as a model with "
            "its steps, its data and its optimizer; leave that out, or write a task of functions (model, train_data, test_data, loss)",
            kind="task",
        )

    return refuse


def alone(module: Any) -> Any:
    """The same object, of a class of its own: it logs into `module.logged`, and asks no Trainer."""
    if not module.automatic_optimization:
        raise RunFailed(
            f"{type(module).__name__} sets automatic_optimization=False: manual optimization is the Trainer's; write a task of functions "
            "with step(batch, optimizers)",
            kind="task",
        )
    members: dict[str, Any] = {name: property(_refusal(name)) for name in _ANSWERED_BY_A_TRAINER}
    members |= {name: _refusal(name) for name in _DONE_BY_A_TRAINER}
    members |= {
        "log": lambda self, *values, **how: self.logged.log(*values, **how),
        "log_dict": lambda self, *values, **how: self.logged.log_dict(*values, **how),
        "__module__": type(module).__module__,
    }
    module.logged = Logged()
    module.__class__ = type(type(module).__name__, (type(module),), members)
    return module
