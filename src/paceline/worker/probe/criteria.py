"""What torch's own criteria are asked for while a task's loss is computed: weights of classes, targets that count for nothing. A few
samples may hold none of either; the arguments say what may come."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

_OF_CLASSES = {functional.cross_entropy, functional.nll_loss}


class Criteria(TorchFunctionMode):
    """`weighs`: a mean over samples that are weighed by their classes. `ignored`: the targets that means leave out. `followed`: a
    model that computes its own loss was listened to as well."""

    def __init__(self) -> None:
        super().__init__()
        self.weighs = False
        self.ignored: set[int] = set()
        self.followed = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _OF_CLASSES and kwargs.get("reduction", "mean") == "mean":
            weight = kwargs.get("weight", args[2] if len(args) > 2 else None)
            if isinstance(weight, torch.Tensor) and weight.numel() and bool((weight != weight.reshape(-1)[0]).any()):
                self.weighs = True
            self.ignored.add(int(kwargs.get("ignore_index", -100)))
        return func(*args, **kwargs)
