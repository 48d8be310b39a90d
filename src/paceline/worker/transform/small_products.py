"""Small matrix products as sums that torch's compiler writes itself: for a graph that a GPU compiles.

cuBLAS has nothing for products this small. On an H200, at batches of 32, half of a step of `features` (512-32-20) was two of them: with a
bias it clears memory, scales, multiplies and adds, four kernels and 17 us each. As a sum it is one kernel of 2 us, which also fetches
a factor (docs/graphs.md). In whole formats alone: in a half format other numbers would be rounded.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.worker.transform.crossovers import MOST_APART, MOST_SUMMED

_aten = torch.ops.aten
_WHOLE = (torch.float32, torch.float64)


def _num(a: torch.Tensor, b: torch.Tensor) -> int:
    return a.shape[0] * a.shape[1] * b.shape[1]


def summed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product as a sum, which torch's compiler writes itself."""
    return (a[:, :, None] * b[None]).sum(1)


def bias_apart(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """cuBLAS's product, and the bias beside it; of an addition torch's compiler would make an `addmm` again."""
    return _aten.mm(a, b) - (-bias)


def _product(a: torch.Tensor, b: torch.Tensor) -> Any:
    """In the place of torch's `mm`."""
    return summed(a, b) if a.dtype in _WHOLE and _num(a, b) <= MOST_SUMMED else NotImplemented


def _with_bias(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """In the place of torch's `addmm`."""
    if a.dtype not in _WHOLE or beta != 1 or alpha != 1 or _num(a, b) > MOST_APART:
        return NotImplemented
    return summed(a, b) + bias if _num(a, b) <= MOST_SUMMED else bias_apart(bias, a, b)


SMALL_PRODUCTS: dict[Any, Any] = {_aten.mm.default: _product, _aten.addmm.default: _with_bias}
