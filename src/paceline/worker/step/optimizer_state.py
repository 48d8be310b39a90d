"""An optimizer's state by name: what it keeps for each parameter, the options of its groups, which a schedule may move, and what a
class of the user's own keeps in attributes.

By parameters' names and not by their numbers, so that it fits whatever order an optimizer holds them in. What cannot be listed
is refused, never left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.step.plain import NotPlain, to_json

# What torch.optim.Optimizer itself keeps. Hooks and flags beside them begin with an underscore.
_TORCHS = frozenset({"defaults", "param_groups", "state"})
_ATTRIBUTE = "attribute "  # before the number of the optimizer that keeps it


class OptimizerState:
    def __init__(self, optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> None:
        self._optimizer = optimizer
        self._parameters = dict(model.named_parameters())
        # One optimizer, or several with one face.
        self._parts: list[torch.optim.Optimizer] = list(getattr(optimizer, "parts", [optimizer]))
        # which of them keeps the state of a parameter, and in which group
        self._keeps = {
            id(parameter): (part, group)
            for part in self._parts
            for group in part.param_groups
            for parameter in group["params"]
        }

    # ---- listed ----

    def tensors(self) -> dict[str, torch.Tensor]:
        state = {f"{name}/{key}": value for name, key, value in self._items() if isinstance(value, torch.Tensor)}
        groups = {
            f"group {index}/{key}": value
            for index, group in enumerate(self._optimizer.param_groups)
            for key, value in group.items()
            if isinstance(value, torch.Tensor)
        }
        own = {path: value for path, _, _, value in self._attributes() if isinstance(value, torch.Tensor)}
        return {**state, **groups, **own}

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
        own = {
            path: self._plain(value, f"an attribute {key!r}")
            for path, _, key, value in self._attributes()
            if not isinstance(value, torch.Tensor)
        }
        return {"state": state, "groups": groups, "attributes": own}

    def _items(self) -> Iterator[tuple[str, str, Any]]:
        """(parameter's name, key, value)"""
        for part in self._parts:
            if strangers := [key for key in part.state if not isinstance(key, torch.Tensor)]:
                self._refuse(f"under {strangers[0]!r} a state that belongs to no parameter")
        for name, parameter in self._parameters.items():
            part, _ = self._keeps.get(id(parameter), (None, None))
            if part is not None and parameter in part.state:
                for key, value in part.state[parameter].items():
                    yield name, key, value

    def _attributes(self) -> Iterator[tuple[str, torch.optim.Optimizer, str, Any]]:
        """(name, optimizer, attribute, value): of classes that are neither torch's nor ours. Functions do not change."""
        for index, part in enumerate(self._parts):
            if not _is_users(part):
                continue
            for key, value in vars(part).items():
                theirs = key in _TORCHS or key.startswith(("_optimizer_", "_zero_grad_", "_warned_", "_patched_"))
                if not theirs and not callable(value) and not _parameters(value):
                    yield f"{_ATTRIBUTE}{index}/{key}", part, key, value

    # ---- put back ----

    def check(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> None:
        """Refuses what `restore` could not put back in full, before anything is changed."""
        here = self.tensors()
        known = {*self._parameters, *(f"group {index}" for index in range(len(self._optimizer.param_groups)))}
        users = {f"{_ATTRIBUTE}{index}" for index, part in enumerate(self._parts) if _is_users(part)}
        for path, saved in tensors.items():
            own, owner = here.get(path), path.rsplit("/", 1)[0]
            if owner not in known | users:
                _misfit(f"an optimizer's tensor {path}, which belongs to nothing here")
            if own is not None and owner in known and (local(own).shape != saved.shape or own.dtype != saved.dtype):
                there, shape = f"{saved.dtype} of shape {list(saved.shape)}", list(local(own).shape)
                _misfit(f"{there} for optimizer/{path}, which is {own.dtype} of shape {shape} here")
        if strange := [path for path in values["attributes"] if path.rsplit("/", 1)[0] not in users]:
            _misfit(f"an optimizer's {strange[0]}, which belongs to nothing here")
        if unknown := [name for name in values["state"] if name not in self._parameters]:
            _misfit(f"an optimizer's state for {unknown[0]}, which is no parameter here")
        if (num := len(self._optimizer.param_groups)) != len(values["groups"]):
            _misfit(f"{len(values['groups'])} groups of parameters for an optimizer that has {num} here")

    def restore(self, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]) -> None:
        """In place where there is something; a value that was not there when the state was copied out goes."""
        saved: dict[str, dict[str, Any]] = {name: {} for name in self._parameters}
        for path, tensor in tensors.items():
            name, key = path.rsplit("/", 1)
            if name in saved:
                saved[name][key] = tensor
        for name, rows in values["state"].items():
            saved[name] |= to_json(rows)
        for name, parameter in self._parameters.items():
            part, options = self._keeps.get(id(parameter), (None, None))
            if part is None or options is None:
                continue
            if not saved[name]:
                part.state.pop(parameter, None)
                continue
            own = part.state[parameter]  # torch makes an empty one where there is none
            for key in [key for key in own if key not in saved[name]]:
                del own[key]
            for key, value in saved[name].items():
                own[key] = _filled(own.get(key), value, parameter, key, options)
        for index, group in enumerate(self._optimizer.param_groups):
            for key, value in to_json(values["groups"][index]).items():
                group[key] = tuple(value) if isinstance(group.get(key), tuple) else value
            for key, value in group.items():
                if isinstance(value, torch.Tensor) and f"group {index}/{key}" in tensors:
                    value.copy_(tensors[f"group {index}/{key}"])
        own = {path: tensor for path, tensor in tensors.items() if path.startswith(_ATTRIBUTE)}
        self._restore_attributes({**own, **values["attributes"]})

    def _restore_attributes(self, saved: Mapping[str, Any]) -> None:
        """Those that a class makes in a later step are made here, or taken away."""
        for path, part, key, _ in list(self._attributes()):
            if path not in saved:
                delattr(part, key)
        for path, value in saved.items():
            owner, key = path.removeprefix(_ATTRIBUTE).split("/", 1)
            part = self._parts[int(owner)]
            here = vars(part).get(key)
            if not isinstance(value, torch.Tensor):
                given = to_json(value)
                setattr(part, key, tuple(given) if isinstance(here, tuple) else given)
            elif isinstance(here, torch.Tensor) and here.shape == value.shape and here.dtype == value.dtype:
                here.copy_(value)
            else:
                device = next(iter(self._parameters.values())).device
                setattr(part, key, value.to(device=device, copy=True))

    # ---- refused ----

    def _plain(self, value: Any, what: str) -> Any:
        try:
            return to_json(value)
        except NotPlain:
            self._refuse(f"{what} that is a {type(value).__name__}")

    def _refuse(self, what: str) -> Any:
        raise RunFailed(
            f"{type(self._optimizer).__name__} keeps {what}: only tensors and plain numbers, for a parameter, in a group or in an "
            "attribute, can be copied out of an optimizer",
            kind="mismatch",
        )


def _is_users(part: torch.optim.Optimizer) -> bool:
    return type(part).__module__.partition(".")[0] not in ("torch", "paceline")


def _parameters(value: Any) -> bool:
    """Parameters that an optimizer keeps a list of are listed as parameters already."""
    items: Any = value if isinstance(value, list | tuple) else [value]
    return bool(items) and all(isinstance(item, torch.nn.Parameter) for item in items)


def _misfit(what: str) -> None:
    raise RunFailed(f"the state that should be put back has {what}", kind="mismatch")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a DTensor, sharing its memory. Recognised by its attributes, because importing DTensor takes
    half a second."""
    part: Any = tensor
    return part.to_local() if hasattr(tensor, "to_local") else tensor


def _filled(own: Any, saved: Any, parameter: torch.nn.Parameter, key: str, options: Mapping[str, Any]) -> Any:
    """The tensor that is there, with the saved values; a new one where there is none, cut as its parameter is."""
    if not isinstance(saved, torch.Tensor):
        return saved
    if isinstance(own, torch.Tensor):
        local(own).copy_(saved)
        return own
    # torch keeps a counter of steps on the host, unless the update reads it on the device
    on_host = key == "step" and not options.get("fused") and not options.get("capturable")
    made = saved.clone() if on_host else saved.to(device=parameter.device, copy=True)
    cut: Any = parameter
    if hasattr(parameter, "to_local") and made.shape == cut.to_local().shape and key != "step":
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(made, cut.device_mesh, cut.placements, shape=cut.shape, stride=cut.stride())
    return made
