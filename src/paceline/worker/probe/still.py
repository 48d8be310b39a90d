"""Every random operation of torch answered with numbers that are the same for each sample: so a model that draws can be compared with
itself on other samples. It changes no generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_DEVIATIONS = 0.7  # what a normal number is answered with; not 0, which would hide a factor


def _dropout(x: torch.Tensor, p: float, train: bool | None = None) -> Any:
    """Nothing dropped; the scale stays, so that forward and backward fit together."""
    scale = 1.0 if train is False or p >= 1 else 1.0 / (1.0 - p)
    return x * scale, torch.ones_like(x, dtype=torch.bool)


def _permutation(n: int, *_: Any, **more: Any) -> torch.Tensor:
    return torch.arange(n, dtype=more.get("dtype") or torch.int64, device=more.get("device"))


def _most_probable(weights: torch.Tensor, num: int, *_: Any, **__: Any) -> torch.Tensor:
    return weights.argsort(dim=-1, descending=True, stable=True)[..., :num]


# What replaces an operation as a whole; any other is called, and its result overwritten by `_FILLED`.
_INSTEAD: dict[Any, Callable[..., Any]] = {
    _aten.native_dropout.default: _dropout,
    _aten.randperm.default: _permutation,
    _aten.multinomial.default: _most_probable,
}


def _numbers(args: Any) -> list[float]:
    return [value for value in args if isinstance(value, int | float) and not isinstance(value, bool)]


def _filled(name: str, result: torch.Tensor, args: Any, kwargs: Any) -> torch.Tensor:
    """`result` overwritten by what is most likely, or in the middle."""
    if name.startswith("normal"):
        mean, deviation = (
            (*args, 0.0, 1.0)[:2] if name == "normal" else (*_numbers((*args[1:], *kwargs.values())), 0.0, 1.0)[:2]
        )
        return result.copy_(torch.as_tensor(mean + _DEVIATIONS * deviation).expand_as(result))
    if name in ("randn", "randn_like"):
        return result.fill_(_DEVIATIONS)
    if name.startswith(("rand", "uniform", "random")) and name not in ("randint_like",):
        integers = not result.is_floating_point()
        bounds = _numbers(args if name == "randint" else args[1:])
        low, high = (0, *bounds)[-2:] if bounds else (0, 1)
        return result.fill_((low + high) // 2 if integers else (low + high) / 2)
    return result.fill_(1)


def _told_apart(result: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
    """Each row by as much as its sample's place says, so that a sample has the same numbers beside any others."""
    columns = torch.arange(result[0].numel(), dtype=torch.float64, device=result.device)
    rows = torch.tensor(list(places), dtype=torch.float64, device=result.device)
    return result.mul_(
        (0.5 + torch.sin(1.0 + 2.3 * rows[:, None] + 1.7 * columns).reshape(result.shape)).to(result.dtype)
    )


class Still(TorchDispatchMode):
    """`drew`: whether anything random was asked for. `places`: of the samples; then random numbers that have a row for each of them differ
    from sample to sample, for a model whose samples are made of nothing else."""

    def __init__(self, places: Sequence[int] = ()) -> None:
        super().__init__()
        self.drew, self._places = False, places

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or _quiet(func, args, kwargs):
            return func(*args, **kwargs)
        self.drew = True
        if (instead := _INSTEAD.get(func)) is not None:
            return instead(*args, **kwargs)
        result = func(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            return result
        result = _filled(func.overloadpacket.__name__, result, args, kwargs)
        if self._places and result.is_floating_point() and result.dim() and len(result) == len(self._places):
            return _told_apart(result, self._places)
        return result


def _quiet(func: Any, args: Any, kwargs: Any) -> bool:
    """Attention is among the random operations, and draws only where it drops something."""
    name = func.overloadpacket.__name__
    if "attention" not in name:
        return False
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    return not given.get("dropout_p")
