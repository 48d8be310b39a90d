"""Small matrix products as sums that torch's compiler writes itself: for a graph that a GPU compiles.

cuBLAS has nothing for products this small: one takes 5 to 10 us on an H200 however little there is to multiply, where a sum takes 2 to 4.
Up to which size is measured (`crossovers.py`). In whole formats alone: in a half format other numbers would be rounded.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.worker.transform.crossovers import MOST_SUMMED

_aten = torch.ops.aten
_WHOLE = (torch.float32, torch.float64)


def _num(a: torch.Tensor, b: torch.Tensor) -> int:
    return a.shape[0] * a.shape[1] * b.shape[1]


def summed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product as a sum, which torch's compiler writes itself."""
    return (a[:, :, None] * b[None]).sum(1)


def _product(a: torch.Tensor, b: torch.Tensor) -> Any:
    """In the place of torch's `mm`."""
    return summed(a, b) if a.dtype in _WHOLE and _num(a, b) <= MOST_SUMMED else NotImplemented


def _with_bias(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """In the place of torch's `addmm`."""
    if a.dtype not in _WHOLE or beta != 1 or alpha != 1 or _num(a, b) > MOST_SUMMED:
        return NotImplemented
    return summed(a, b) + bias


SMALL_PRODUCTS: dict[Any, Any] = {_aten.mm.default: _product, _aten.addmm.default: _with_bias}
