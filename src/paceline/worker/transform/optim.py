"""From the optimizer settings to torch's optimizer, and the rate of a step put into it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.transform.schedule import Rate, top_lr
from paceline.worker.transform.sparse import refusal

_WAYS = {
    "single": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}


class Joint(torch.optim.Optimizer):
    """Several optimizers with one face, each for parameters of its own: Adam, and SparseAdam for tables with sparse gradients."""

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)
        self.defaults = self.parts[0].defaults
        # The groups themselves, not copies: a rate that is set here is set in them.
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @property
    def state(self) -> dict[Any, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {parameter: kept for part in self.parts for parameter, kept in part.state.items()}

    def step(self, closure: Any = None) -> None:
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)


def build(
    parameters: Iterable[torch.nn.Parameter], spec: Spec, *, sparse: Collection[torch.nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """`sparse`: those whose gradients are sparse. SGD takes them as they are; beside Adam there is torch's SparseAdam, which leaves
    rows alone that no sample used."""
    rows = {id(parameter) for parameter in sparse}
    everything = list(parameters)
    if not rows:
        return _dense(everything, spec)
    if why := refusal(spec):
        raise RunFailed(why, kind="mismatch")
    if spec.optimizer == "sgd":
        return _dense(everything, spec)
    dense = [parameter for parameter in everything if id(parameter) not in rows]
    lazy = torch.optim.SparseAdam([p for p in everything if id(p) in rows], lr=top_lr(spec))
    return Joint([_dense(dense, spec), lazy] if dense else [lazy])


def _dense(parameters: list[torch.nn.Parameter], spec: Spec) -> torch.optim.Optimizer:
    """`update` is given in words of its own, so torch decides nothing."""
    assert spec.weight_decay != "auto" and spec.update != "auto"
    common: dict[str, Any] = {"lr": top_lr(spec), "weight_decay": spec.weight_decay, **_WAYS[spec.update]}
    groups = _kinds(parameters)
    match spec.optimizer:
        case "adam":
            return torch.optim.Adam(groups, **common)
        case "adamw":
            return torch.optim.AdamW(groups, **common)
        case "sgd":
            return torch.optim.SGD(groups, momentum=spec.momentum, nesterov=spec.nesterov, **common)
        case "rmsprop":
            del common["fused"]  # torch has none, and a rule refuses it
            return torch.optim.RMSprop(groups, momentum=spec.momentum, **common)
        case _:
            raise RunFailed(f"optimizer={spec.optimizer}: not built yet", kind="mismatch")


def _kinds(parameters: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
    """Parameters that are cut over ranks (DTensors) in a group of their own: torch cannot update both kinds in one call."""
    kinds = [[p for p in parameters if hasattr(p, "placements") == cut] for cut in (False, True)]
    return [{"params": kind} for kind in kinds if kind]


def set_rate(optimizer: torch.optim.Optimizer, rate: Rate) -> None:
    """A rate that is a tensor (a captured step reads it from there) is filled, not replaced."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate.lr)
        else:
            group["lr"] = rate.lr
        if (
            rate.beta is not None and "betas" in group
        ):  # the momentum of sgd and rmsprop is a setting, and stays as it was asked
            group["betas"] = (rate.beta, group["betas"][1])


def way(optimizer: torch.optim.Optimizer) -> str | None:
    """How it runs, read from its groups, in the words of the setting; None where it has no such choice."""
    groups = [group for group in optimizer.param_groups if "foreach" in group]
    if not groups:  # SparseAdam alone has one way only, so no way was left out
        return None
    return "fused" if groups[0].get("fused") else "foreach" if groups[0]["foreach"] else "single"


def classes(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """Whose arithmetic it is, for the record: torch's class, and the one for sparse gradients where there is one beside it."""
    names = [type(part).__name__ for part in (optimizer.parts if isinstance(optimizer, Joint) else [optimizer])]
    return dict(zip(("class", "sparse"), names, strict=False))
