"""From the settings to the way the model is spread over ranks: the one place that chooses."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.sharding.replicate import Replicated
from paceline.worker.sharding.sharding import Sharding
from paceline.worker.sharding.whole import Whole
from paceline.worker.tasks.task import Task
from paceline.worker.world.join import World


@dataclass(frozen=True, slots=True)
class Sharded:
    """`module` is what the step calls in training; the plain `Whole` inside it serves evaluation."""

    sharding: Sharding
    module: torch.nn.Module


def shard(spec: Spec, task: Task, whole: Whole, world: World, watch: Stopwatch) -> Sharded:
    match spec.sharding:
        case "none" if spec.sync_every == 1:
            return Sharded(Replicated(whole.model, world), whole)
        case _:
            raise RunFailed(f"sharding={spec.sharding} sync_every={spec.sync_every}: not built yet", kind="mismatch")
