"""An optimizer's state by name: what it keeps for each parameter, and the options of its groups, which a schedule may move.

By parameters' names and not by their numbers, so that it fits whatever order an optimizer holds them in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from paceline.base.errors import RunFailed

_PLAIN = (bool, int, float, str, type(None))


class OptimizerState:
    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
        self._optimizer = optimizer
        self._parameters = dict(model.named_parameters())
        # One optimizer, or several with one face: which of them keeps the state of a parameter.
        self._keeps = {
            id(parameter): part
            for part in getattr(optimizer, "parts", [optimizer])
            for group in part.param_groups
            for parameter in group["params"]
        }

    def _items(self) -> Iterator[tuple[str, str, Any]]:
        """(parameter's name, key, value)"""
        for name, parameter in self._parameters.items():
            part = self._keeps.get(id(parameter))
            if part is not None and parameter in part.state:
                for key, value in part.state[parameter].items():
                    yield name, key, value

    def tensors(self) -> dict[str, torch.Tensor]:
        state = {f"{name}/{key}": value for name, key, value in self._items() if isinstance(value, torch.Tensor)}
        groups = {
            f"group {index}/{key}": value
            for index, group in enumerate(self._optimizer.param_groups)
            for key, value in group.items()
            if isinstance(value, torch.Tensor)
        }
        return {**state, **groups}

    def values(self) -> dict[str, Any]:
        """What is no tensor, as JSON takes it."""
        state: dict[str, dict[str, Any]] = {}
        for name, key, value in self._items():
            if not isinstance(value, torch.Tensor):
                state.setdefault(name, {})[key] = self._plain(value, f"for {name} a {key!r}")
        groups = [
            {
                key: self._plain(value, f"in a group {key!r}")
                for key, value in group.items()
                if key != "params" and not isinstance(value, torch.Tensor)
            }
            for group in self._optimizer.param_groups
        ]
        return {"state": state, "groups": groups}

    def restore(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> None:
        """In place where there is something; a value that was not there when the state was copied out goes."""
        saved: dict[str, dict[str, Any]] = {name: {} for name in self._parameters}
        for path, tensor in tensors.items():
            name, key = path.rsplit("/", 1)
            if name in saved:
                saved[name][key] = tensor
        for name, rows in values["state"].items():
            saved[name] |= rows
        for name, parameter in self._parameters.items():
            part = self._keeps.get(id(parameter))
            if part is None:
                continue
            if not saved[name]:
                part.state.pop(parameter, None)
                continue
            own = part.state[parameter]  # torch makes an empty one where there is none
            for key in [key for key in own if key not in saved[name]]:
                del own[key]
            for key, value in saved[name].items():
                own[key] = _filled(own.get(key), value, parameter, key)
        for index, group in enumerate(self._optimizer.param_groups):
            for key, value in values["groups"][index].items():
                group[key] = tuple(value) if isinstance(group.get(key), tuple) else value
            for key, value in group.items():
                if isinstance(value, torch.Tensor) and f"group {index}/{key}" in tensors:
                    value.copy_(tensors[f"group {index}/{key}"])

    def _plain(self, value: Any, what: str) -> Any:
        if isinstance(value, tuple | list) and all(isinstance(item, _PLAIN) for item in value):
            return list(value)
        if not isinstance(value, _PLAIN):
            raise RunFailed(
                f"{type(self._optimizer).__name__} keeps {what} that is a {type(value).__name__}: only tensors and plain numbers can be "
                "copied out of an optimizer",
                kind="mismatch",
            )
        return value


def _filled(own: Any, saved: Any, parameter: torch.nn.Parameter, key: str) -> Any:
    """The tensor that is there, with the saved values; a new one where there is none, cut as its parameter is."""
    if not isinstance(saved, torch.Tensor):
        return saved
    if isinstance(own, torch.Tensor):
        here: Any = own
        (here.to_local() if hasattr(own, "to_local") else own).copy_(saved)
        return own
    # torch keeps a counter of steps on the host, unless a graph has moved it to its weights
    made = saved.clone() if key == "step" else saved.to(device=parameter.device, copy=True)
    cut: Any = parameter
    if hasattr(parameter, "to_local") and made.shape == cut.to_local().shape and key != "step":
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(made, cut.device_mesh, cut.placements, shape=cut.shape, stride=cut.stride())
    return made
