"""From the optimizer settings to torch's optimizer, and the rate of a step put into it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from paceline.spec.run import Spec
from paceline.worker.transform.schedule import Rate, top_lr

_WAYS = {
    "single": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}


def build(parameters: Iterable[torch.nn.Parameter], spec: Spec) -> torch.optim.Optimizer:
    """`update` is given in words of its own, so torch decides nothing."""
    assert spec.weight_decay != "auto" and spec.update != "auto"
    common: dict[str, Any] = {"lr": top_lr(spec), "weight_decay": spec.weight_decay, **_WAYS[spec.update]}
    match spec.optimizer:
        case "adam":
            return torch.optim.Adam(parameters, **common)
        case "adamw":
            return torch.optim.AdamW(parameters, **common)
        case "sgd":
            return torch.optim.SGD(parameters, momentum=spec.momentum, nesterov=spec.nesterov, **common)
        case "rmsprop":
            del common["fused"]  # torch has none, and a rule refuses it
            return torch.optim.RMSprop(parameters, momentum=spec.momentum, **common)


def set_rate(optimizer: torch.optim.Optimizer, rate: Rate) -> None:
    """A rate that is a tensor (a captured step reads it from there) is filled, not replaced."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate.lr)
        else:
            group["lr"] = rate.lr
        if rate.momentum is not None:
            if "betas" in group:
                group["betas"] = (rate.momentum, group["betas"][1])
            elif group.get("momentum"):  # an update without momentum does not get one from its schedule
                group["momentum"] = rate.momentum


def way(optimizer: torch.optim.Optimizer) -> str:
    """How it runs, read from its groups, in the words of the setting."""
    group = optimizer.param_groups[0]
    return "fused" if group.get("fused") else "foreach" if group.get("foreach") else "single"
