"""From the optimizer settings to torch's optimizer, and what it then says of itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.run import Spec
from paceline.worker.optim.joint import Joint
from paceline.worker.optim.own import build_own
from paceline.worker.optim.schedule import top_lr
from paceline.worker.optim.sparse import refusal, sparse_parameters
from paceline.worker.optim.table import RULES
from paceline.worker.tasks.task import Task

_WAYS = {
    "single": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}


def build_optimizer(model: torch.nn.Module, spec: Spec, task: Task) -> torch.optim.Optimizer:
    """The optimizer that the settings name, or the task's own."""
    if OPTIMIZERS[spec.optimizer].is_tasks:
        return build_own(task, model, top_lr(spec))
    return build(model.parameters(), spec, sparse=sparse_parameters(model))


def build(
    parameters: Iterable[torch.nn.Parameter], spec: Spec, *, sparse: Collection[torch.nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """`sparse`: the parameters with sparse gradients. SGD takes them as they are. Adam leaves them to torch's
    SparseAdam, which does not touch rows that no sample used."""
    rows = {id(parameter) for parameter in sparse}
    everything = list(parameters)
    if not rows:
        return _dense(everything, spec)
    if why := refusal(spec):
        raise RunFailed(why, kind="mismatch")
    if OPTIMIZERS[spec.optimizer].sparse_class == OPTIMIZERS[spec.optimizer].torch_class:
        return _dense(everything, spec)
    dense = [parameter for parameter in everything if id(parameter) not in rows]
    lazy = torch.optim.SparseAdam([p for p in everything if id(p) in rows], lr=top_lr(spec))
    return Joint([_dense(dense, spec), lazy] if dense else [lazy])


def _dense(parameters: list[torch.nn.Parameter], spec: Spec) -> torch.optim.Optimizer:
    """`update` is passed as explicit `foreach` and `fused` arguments, so torch chooses nothing by itself."""
    assert spec.weight_decay != "auto" and spec.update != "auto"
    common: dict[str, Any] = {"lr": top_lr(spec), "weight_decay": spec.weight_decay, **_WAYS[spec.update]}
    return RULES[spec.optimizer].build(_kinds(parameters), spec, common)


def _kinds(parameters: list[torch.nn.Parameter]) -> list[dict[str, Any]]:
    """Parameters that are cut over ranks (DTensors) in a group of their own: torch cannot update both kinds in one call."""
    kinds = [[p for p in parameters if hasattr(p, "placements") == cut] for cut in (False, True)]
    return [{"params": kind} for kind in kinds if kind]


def way(optimizer: torch.optim.Optimizer) -> str | None:
    """Which implementation it runs, read from its groups, in the words of the setting `update`; None where there is no
    choice."""
    groups = [group for group in optimizer.param_groups if "foreach" in group]
    if not groups:  # SparseAdam alone has one way only, so no way was left out
        return None
    return "fused" if groups[0].get("fused") else "foreach" if groups[0]["foreach"] else "single"


def classes(optimizer: torch.optim.Optimizer) -> dict[str, str]:
    """The optimizer classes, for the record: torch's class, and that for sparse gradients, if there is one; of a task's
    several all by name."""
    if isinstance(optimizer, Joint) and optimizer.names:
        return {"class": ", ".join(f"{name}: {type(part).__name__}" for name, part in optimizer.by_name.items())}
    names = [type(part).__name__ for part in (optimizer.parts if isinstance(optimizer, Joint) else [optimizer])]
    return dict(zip(("class", "sparse"), names, strict=False))
