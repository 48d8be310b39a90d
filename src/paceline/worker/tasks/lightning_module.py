"""A `lightning.LightningModule` as a task: its steps give loss and scores, its loaders the data, `configure_optimizers` the optimizer.

Nothing here trains: the module is a model whose forward pass is its own step. What cannot be honoured is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader

from paceline.base.errors import RunFailed
from paceline.worker.tasks.lightning_alone import alone, bases, check_hooks, no_index, overridden

# Parameters of a module that are settings as well: the setting is used, and begins with what the module asks for.
_OF_ITS_OPTIMIZER = ("lr", "weight_decay", "momentum", "nesterov")
# Parameters of loaders, which are not used: so that nobody gives them and waits for an effect, they are no parameters of the task.
_OF_ITS_LOADERS = ("batch_size", "num_workers", "pin_memory", "persistent_workers")


def tasks(classes: Mapping[str, type[Any]]) -> dict[str, type[Any]]:
    """Of these classes of a file the LightningModules that can be trained, each as the class of a task."""
    modules, data = bases("LightningModule"), bases("LightningDataModule")
    if not modules:
        return {}
    loaders = [cls for cls in classes.values() if issubclass(cls, data)] if data else []
    return {
        name: _as_task(cls, loaders)
        for name, cls in classes.items()
        if issubclass(cls, modules) and overridden(cls, "training_step")
    }


def _as_task(module: type[Any], loaders: Sequence[type[Any]]) -> type[Any]:
    """A class whose parameters are those of the module, and of the data module that stands beside it."""

    class Made(LightningTask):
        of_module, of_data = module, tuple(loaders)

    Made.__name__ = Made.__qualname__ = module.__name__
    Made.__module__ = module.__module__
    Made.__signature__ = _signature(module, loaders)  # pyright: ignore[reportAttributeAccessIssue]
    return Made


def _own_parameters(cls: type[Any]) -> dict[str, inspect.Parameter]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind not in kinds
        and (parameter.default is parameter.empty or name not in (*_OF_ITS_OPTIMIZER, *_OF_ITS_LOADERS))
    }


def _signature(module: type[Any], loaders: Sequence[type[Any]]) -> inspect.Signature:
    parameters = _own_parameters(module)
    for cls in loaders:
        parameters = {**_own_parameters(cls), **parameters}
    return inspect.Signature([*parameters.values()])


class LightningTask:
    """The functions of a task, from a module class and perhaps a data module's."""

    of_module: type[Any]
    of_data: tuple[type[Any], ...]

    def __init__(self, **given: Any) -> None:
        check_hooks(self.of_module)
        if len(self.of_data) > 1:
            raise RunFailed(
                f"the file defines {len(self.of_data)} LightningDataModules: keep the one that {self.of_module.__name__} is trained on",
                kind="task",
            )
        self._given = given
        self._source: Any = None
        self._stages: set[str] = set()
        if not overridden(self.of_module, "configure_optimizers"):  # then the settings name one
            vars(self).update(optimizer=None, own_rate=None)

    def _build(self, cls: type[Any]) -> Any:
        taken = inspect.signature(cls).parameters
        return cls(**{name: value for name, value in self._given.items() if name in taken})

    def model(self) -> torch.nn.Module:
        module = alone(self._build(self.of_module))
        module.configure_model()
        if overridden(self.of_module, "setup"):
            module.setup("fit")
        return module

    # ---- data ----

    def train_data(self) -> Any:
        return self._data("train_dataloader", "fit")

    def test_data(self) -> Any:
        """The test loader's, or where there is none the validation loader's."""
        test = any(overridden(cls, "test_dataloader") for cls in (*self.of_data, self.of_module))
        return self._data("test_dataloader", "test") if test else self._data("val_dataloader", "fit")

    def _data(self, loader: str, stage: str) -> Any:
        homes = [cls for cls in (*self.of_data, self.of_module) if overridden(cls, loader)]
        if not homes:
            raise RunFailed(
                f"{self.of_module.__name__}: there is no {loader}(), in it or in a LightningDataModule beside it",
                kind="data",
            )
        if type(self._source).__mro__[1:2] != (homes[0],) and type(self._source) is not homes[0]:
            made = self._build(homes[0])
            self._source = alone(made) if homes[0] is self.of_module else _checked(made)
            self._source.prepare_data()
            self._stages.clear()
        if stage not in self._stages:
            self._source.setup(stage)
            self._stages.add(stage)
        return self._taken(getattr(self._source, loader)(), loader)

    def _taken(self, given: Any, loader: str) -> Any:
        """The loader itself: what is taken over of one, and what becomes a setting's default, is the same for every task."""
        if not isinstance(given, DataLoader):
            raise RunFailed(
                f"{self.of_module.__name__}: {loader}() returned a {type(given).__name__}; one DataLoader is taken, not several",
                kind="data",
            )
        return given

    # ---- the steps ----

    def forward(self, model: Any, batch: Any) -> Any:
        """The loss is that of `training_step`, in evaluation too; the scores are what the step of the test data logs."""
        found = {"loss": _loss(model, _step(model, "training_step", batch))}
        names = () if model.training else ("test_step", "validation_step")
        name = next((name for name in names if overridden(self.of_module, name)), None)
        if name is not None:
            _step(model, name, batch)
            found["scores"] = dict(model.logged.values)
        return found

    def loss(self, outputs: Any, batch: Any) -> Any:
        return outputs["loss"]

    def score(self, outputs: Any, batch: Any) -> Any:
        return outputs.get("scores", {})

    # ---- the optimizer ----

    def own_rate(self, model: Any) -> float:
        """The rate that `configure_optimizers` asks for, where nobody sets lr."""
        rate = float(_configured(model).param_groups[0]["lr"])
        if not rate > 0:
            raise RunFailed(
                f"{type(model).__name__}.configure_optimizers() asks for lr={rate}: it must be above 0", kind="task"
            )
        return rate

    def optimizer(self, model: Any, lr: float) -> torch.optim.Optimizer:
        """Its groups keep the proportions of their rates."""
        made = _configured(model)
        own = float(made.param_groups[0]["lr"])
        for group in made.param_groups:
            group["lr"] = group["lr"] if lr == own else group["lr"] * (lr / own)
        return made


def _checked(data: Any) -> Any:
    check_hooks(type(data))
    return data


def _step(model: Any, name: str, batch: Any) -> Any:
    step = getattr(model, name)
    parameters = inspect.signature(step).parameters
    if "dataloader_iter" in parameters:
        raise RunFailed(
            f"{type(model).__name__}.{name}(dataloader_iter): it would fetch its own batches; take a batch", kind="task"
        )
    model.logged.values.clear()
    index = {"batch_idx": no_index()} if "batch_idx" in parameters else {}
    try:
        return step(batch, **index)
    finally:
        for part in model.modules():  # a metric adds up batches, and nothing of one may be left in the next
            if hasattr(part, "_forward_cache") and callable(getattr(part, "reset", None)):
                part.reset()


def _loss(model: Any, value: Any) -> Any:
    found = value.get("loss") if isinstance(value, Mapping) else value
    if not isinstance(found, torch.Tensor):
        raise RunFailed(
            f"{type(model).__name__}.training_step returned {'no loss' if found is None else f'a {type(found).__name__}'}; it must return "
            'the loss, or a dict with "loss" in it, for every batch',
            kind="task",
        )
    return found


def _configured(model: Any) -> torch.optim.Optimizer:
    """The one optimizer of `configure_optimizers`."""
    made = model.configure_optimizers()
    where = f"{type(model).__name__}.configure_optimizers()"
    if isinstance(made, tuple) and len(made) == 2 and all(isinstance(part, list) for part in made):
        made, schedulers = made
    elif isinstance(made, Mapping):
        made, schedulers = made.get("optimizer"), [made["lr_scheduler"]] if made.get("lr_scheduler") is not None else []
    else:
        schedulers = []
    if isinstance(made, list | tuple) and len(made) == 1:
        made = made[0]
    if isinstance(made, list | tuple) and len(made) > 1:
        raise RunFailed(
            f"{where} returned {len(made)} optimizers: a step has one loss and one optimizer here; write a task of functions",
            kind="task",
        )
    if schedulers:
        raise RunFailed(
            f"{where} returned a learning-rate scheduler, which is not taken: return the optimizer alone, and use the settings schedule=, "
            "warmup= and lr_decay=",
            kind="task",
        )
    if not isinstance(made, torch.optim.Optimizer):
        raise RunFailed(f"{where} returned a {type(made).__name__}, not a torch.optim.Optimizer", kind="task")
    return made
