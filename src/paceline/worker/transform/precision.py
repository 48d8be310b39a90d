"""Number formats by name, applied to a model and to what goes into it. Floating point only: labels and ids keep their type."""

from __future__ import annotations

from typing import Any

import torch

from paceline.spec.run import Spec

_DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


def dtype(spec: Spec) -> torch.dtype:
    return _DTYPES[spec.precision]


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
