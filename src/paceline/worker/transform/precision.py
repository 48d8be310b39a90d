"""Number formats by name, applied to a model and to what goes into it, and the formats that layers really gave, read back.

Floating point only: labels and ids keep their type. Under wrap=accelerate mixed precision is its maker's work; here it is checked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec

_WHOLE = {"fp32": torch.float32, "fp64": torch.float64}
_MIXED = {"fp16": torch.float16, "bf16": torch.bfloat16}
_WORDS = {str(dtype).removeprefix("torch."): word for word, dtype in (_WHOLE | _MIXED).items()}


def is_mixed(spec: Spec) -> bool:
    return spec.precision in _MIXED


def dtype(spec: Spec) -> torch.dtype:
    """Of weights and inputs. Under mixed precision they stay in fp32: each operation is cast where it runs."""
    return torch.float32 if is_mixed(spec) else _WHOLE[spec.precision]


def cast(value: Any, *, to: torch.dtype, device: torch.device) -> Any:
    """A batch of any nesting with its floating tensors in `to`, all on `device`."""
    if isinstance(value, torch.Tensor):
        return value.to(device=device, dtype=to) if value.is_floating_point() else value.to(device)
    if isinstance(value, dict):
        return {name: cast(item, to=to, device=device) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(cast(item, to=to, device=device) for item in value))
    if isinstance(value, tuple | list):
        return type(value)(cast(item, to=to, device=device) for item in value)
    return value


def floating(tensors: Iterable[torch.Tensor]) -> list[str]:
    """The floating types among them, by torch's names, each once."""
    return sorted({str(tensor.dtype).removeprefix("torch.") for tensor in tensors if tensor.is_floating_point()})


def word(parameters: Sequence[str], computed: Sequence[str]) -> str:
    """Our word for what was found: a half type among the results of layers is mixed precision, whatever the weights are.

    >>> word(["float32"], []), word(["float64"], ["float64"]), word(["float32"], ["bfloat16", "float32"])
    ('fp32', 'fp64', 'bf16')
    """
    halves = [name for name in computed if _WORDS.get(name) in _MIXED]
    return "+".join(_WORDS.get(name, name) for name in halves or parameters)


def disagreement(asked: str, computed: Sequence[str]) -> str | None:
    """Why these results are not what `asked` means, in one sentence; None when they are.

    Mixed precision leaves some layers in fp32 by design, so there one result in the half type is what is asked for.
    Nothing seen (a task that calls no module) is no proof of mixed precision; elsewhere the weights were checked already.
    """
    found = {_WORDS.get(name, name) for name in computed}
    stray = found - _WHOLE.keys() - {asked}
    if (asked in found or (not found and asked in _WHOLE)) and not stray:
        return None
    return f"asked for precision {asked}, but the model's layers gave {' and '.join(computed) or 'nothing that could be seen'}"


class Flow:
    """The floating types that layers give while they are watched. Hooks cost time, so they go with the first step.

    On every module, not only on the innermost: a module may compute in its own forward, beside its children.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._seen: set[torch.dtype] = set()
        self._hooks = [
            module.register_forward_hook(lambda _module, _args, out: self.see(out)) for module in model.modules()
        ]

    @property
    def open(self) -> bool:
        return bool(self._hooks)

    def see(self, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            if value.is_floating_point():
                self._seen.add(value.dtype)
        elif isinstance(value, dict):
            self.see(tuple(value.values()))
        elif isinstance(value, tuple | list):
            for item in value:
                self.see(item)

    def close(self) -> tuple[str, ...]:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        return tuple(sorted(str(dtype).removeprefix("torch.") for dtype in self._seen))


def _full(value: Any) -> Any:
    """Half-precision tensors of any nesting in fp32: a loss summed in a half format would be right to two digits."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, dict):
        return {name: _full(item) for name, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_full, value))
    if isinstance(value, tuple | list):
        return type(value)(map(_full, value))
    return value


class Numbers:
    """The format of one run's arithmetic, for the step: the context its forward runs in, and what then really flowed."""

    def __init__(self, spec: Spec, device: torch.device, flow: Flow | None) -> None:
        self._word, self._device, self._flow = spec.precision, device, flow
        self._half = _MIXED.get(spec.precision)
        self.computed: tuple[str, ...] = ()

    @property
    def half(self) -> bool:
        """Gradients are in a format in which sums over a batch would overflow: the step keeps them near the mean."""
        return self._half is not None

    def arithmetic(self) -> AbstractContextManager[Any]:
        if self._half is None:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=self._half)

    def whole(self, outputs: Any) -> Any:
        """Outputs for the loss and the scores: in fp32, where they are in a half format."""
        return outputs if self._half is None else _full(outputs)

    @property
    def looking(self) -> bool:
        return self._flow is not None and self._flow.open

    def look(self, outputs: Any) -> None:
        """After the first forward, before the first update: asked == got, from the types that flowed."""
        assert self._flow is not None
        self._flow.see(outputs)
        self.computed = self._flow.close()
        if why := disagreement(self._word, self.computed):
            raise RunFailed(why, kind="mismatch")
