"""From the settings to the way the model is spread over ranks: the one place that chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.sharding.ddp import Ddp
from paceline.worker.sharding.embedding import CutTables
from paceline.worker.sharding.local import Local
from paceline.worker.sharding.replicate import Replicated
from paceline.worker.sharding.sharding import Sharding
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.sharding.units import units
from paceline.worker.tasks.task import Task
from paceline.worker.world.join import World


@dataclass(frozen=True, slots=True)
class Sharded:
    """`module` is what the step calls in training; the plain `TaskModule` inside it serves evaluation."""

    sharding: Sharding
    module: torch.nn.Module


def shard(spec: Spec, task: Task, task_module: TaskModule, world: World, watch: Stopwatch) -> Sharded:
    match spec.sharding:
        case "none" if spec.sync_every == 1:
            return Sharded(Replicated(task_module.model, world), task_module)
        case "none":
            return Sharded(Local(task_module.model, spec.sync_every, world, watch), task_module)
        case "ddp":
            ddp = Ddp(task_module, spec, world, watch)
            return Sharded(ddp, ddp.module)
        case "fsdp":
            from paceline.worker.sharding.fsdp import Fsdp  # half a second of torch's own imports

            return Sharded(Fsdp(task_module, units(task, task_module.model), spec, world, watch), task_module)
        case "tensor":
            from paceline.worker.sharding.tensor import CutLayers  # the same

            return Sharded(CutLayers(task_module, task, world, watch), task_module)
        case "embedding":
            return Sharded(CutTables(task_module.model, world, watch), task_module)
        case _:
            raise RunFailed(f"sharding={spec.sharding} sync_every={spec.sync_every}: not built yet", kind="mismatch")


def not_as_asked(spec: Spec, exchange: dict[str, Any], *, after_steps: bool = False) -> list[str]:
    """asked == got, of what the objects say of themselves: a sentence's end for each that differs. Some only the steps can show."""
    names = ["bucket_mb", "bucket_view", "reshard", "table_split", *(["compress", "sync_every"] if after_steps else [])]
    asked = {name: want for name in names if name in exchange and (want := getattr(spec, name)) is not None}
    return [f"{name} {want}, got {exchange[name]}" for name, want in asked.items() if not _same(want, exchange[name])]


def _same(asked: object, got: object) -> bool:
    """DDP takes whole bytes of a bucket's megabytes."""
    if isinstance(asked, float) and isinstance(got, float):
        return abs(asked - got) * 2**20 < 1
    return asked == got
