"""From the optimizer settings to torch's optimizer, and the learning rate of an epoch as a pure function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from paceline.spec.run import Spec


def build(parameters: Iterable[torch.nn.Parameter], spec: Spec) -> torch.optim.Optimizer:
    assert spec.weight_decay != "auto"
    common: dict[str, Any] = {"lr": spec.lr, "weight_decay": spec.weight_decay}
    match spec.optimizer:
        case "adam":
            return torch.optim.Adam(parameters, **common)
        case "adamw":
            return torch.optim.AdamW(parameters, **common)
        case "sgd":
            return torch.optim.SGD(parameters, momentum=spec.momentum, **common)
        case "rmsprop":
            return torch.optim.RMSprop(parameters, momentum=spec.momentum, **common)


def learning_rate(spec: Spec, epoch: int) -> float:
    return spec.lr / (1 + spec.lr_decay * epoch)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr
