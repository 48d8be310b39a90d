"""From the settings to the way the model is sharded over ranks: the one place that chooses."""

from __future__ import annotations

from typing import Any

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


def shard(spec: Spec, task: Task, task_module: TaskModule, world: World, watch: Stopwatch) -> Sharding:
    match spec.sharding:
        case "none" if spec.sync_every == 1:
            return Replicated(task_module, world)
        case "none":
            return Local(task_module, spec.sync_every, world, watch)
        case "ddp":
            return Ddp(task_module, spec, world, watch)
        case "fsdp":
            from paceline.worker.sharding.fsdp import Fsdp  # half a second of torch's own imports

            return Fsdp(task_module, units(task, task_module.model), spec, world, watch)
        case "tensor":
            from paceline.worker.sharding.tensor import CutLayers  # the same

            return CutLayers(task_module, task, world, watch)
        case "embedding":
            return CutTables(task_module, world, watch)
        case _:
            raise RunFailed(f"sharding={spec.sharding} sync_every={spec.sync_every}: not built yet", kind="mismatch")


def not_as_asked(spec: Spec, exchange: dict[str, Any], *, after_steps: bool = False) -> list[str]:
    """Compares what was asked with what the built objects report: the end of a sentence for each difference. Some
    differences show only after the first step."""
    names = ["bucket_mb", "bucket_view", "reshard", "table_split", *(["compress", "sync_every"] if after_steps else [])]
    asked = {name: want for name in names if name in exchange and (want := getattr(spec, name)) is not None}
    return [f"{name} {want}, got {exchange[name]}" for name, want in asked.items() if not _same(want, exchange[name])]


def _same(asked: object, got: object) -> bool:
    """DDP takes whole bytes of a bucket's megabytes."""
    if isinstance(asked, float) and isinstance(got, float):
        return abs(asked - got) * 2**20 < 1
    return asked == got
