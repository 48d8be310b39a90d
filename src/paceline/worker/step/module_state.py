"""What modules keep besides parameters and buffers: numbers and tensors in attributes, and the extra state they declare to torch.

A counter of forward passes or a hidden state that goes from batch to batch belongs to a run as much as its weights do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.step.plain import NotPlain, to_json

_TORCHS = frozenset(vars(torch.nn.Module()))  # `training`, hooks, and the tables of parameters, buffers and children
_MOST = 1000  # entries of a container: a vocabulary is no counter, and must not be copied with every state


class ModuleState:
    """Only numbers that have changed since this was made are listed: the rest is how the model was built. What other objects
    than modules keep is not seen."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = dict(model.named_modules())
        self._first = dict(self._numbers())

    def _attributes(self) -> Iterator[tuple[str, Any]]:
        for name, module in self._modules.items():
            for key, value in vars(module).items():
                if key not in _TORCHS:
                    yield f"{name}/{key}", value

    def _numbers(self) -> Iterator[tuple[str, Any]]:
        for path, value in self._attributes():
            if isinstance(value, list | tuple | dict) and len(value) > _MOST:
                continue
            try:
                yield path, to_json(value)
            except NotPlain:
                continue

    def tensors(self) -> dict[str, torch.Tensor]:
        kept = {f"attribute/{path}": value for path, value in self._attributes() if isinstance(value, torch.Tensor)}
        extra = {f"extra/{name}": value for name, value in self._extra() if isinstance(value, torch.Tensor)}
        return {**kept, **extra}

    def values(self) -> dict[str, Any]:
        changed = {
            path: value
            for path, value in self._numbers()
            if path not in self._first or self._first[path] != value  # a NaN counts as changed, which does no harm
        }
        extra: dict[str, Any] = {}
        for name, value in self._extra():
            if not isinstance(value, torch.Tensor):
                try:
                    extra[name] = to_json(value)
                except NotPlain as error:
                    raise RunFailed(
                        f"get_extra_state() of {name or 'the model'} gives a value with a {error} in it: only tensors, numbers, words, and "
                        "lists and tables of them can be copied out of a model",
                        kind="mismatch",
                    ) from None
        return {"numbers": changed, "extra": extra}

    def restore(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> None:
        """Attributes that were not there when the state was copied out go."""
        kept = {path.removeprefix("attribute/"): t for path, t in tensors.items() if path.startswith("attribute/")}
        wanted = {**self._first, **values["numbers"], **kept}
        numbers = dict(self._numbers())
        for path, value in list(self._attributes()):
            if path not in wanted and (isinstance(value, torch.Tensor) or path in numbers):
                module, key = self._place(path)
                delattr(module, key)
        for path, value in wanted.items():
            self._set(path, value)
        for name, value in self._extra():
            saved = (
                tensors[f"extra/{name}"].clone() if isinstance(value, torch.Tensor) else to_json(values["extra"][name])
            )
            self._modules[name].set_extra_state(saved)

    def _set(self, path: str, value: Any) -> None:
        module, key = self._place(path)
        own = vars(module).get(key)
        if not isinstance(value, torch.Tensor):
            if isinstance(own, torch.Tensor) or own != value:
                given = to_json(value)  # a copy: the model may change it in place, and the snapshot must stay
                setattr(module, key, tuple(given) if isinstance(own, tuple) else given)
        elif (
            isinstance(own, torch.Tensor)
            and own.shape == value.shape
            and own.dtype == value.dtype
            and own.grad_fn is None
        ):
            own.detach().copy_(value)
        else:
            device = own.device if isinstance(own, torch.Tensor) else next(module.parameters(), value).device
            setattr(module, key, value.to(device=device, copy=True))

    def _place(self, path: str) -> tuple[torch.nn.Module, str]:
        name, _, key = path.rpartition("/")
        return self._modules[name], key

    def _extra(self) -> Iterator[tuple[str, Any]]:
        for name, module in self._modules.items():
            if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
                yield name, module.get_extra_state()
