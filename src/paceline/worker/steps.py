"""From the settings to the step: the one place that chooses how much of it is a graph."""

from __future__ import annotations

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.sharding.build import Sharded
from paceline.worker.step import EagerStep, Step
from paceline.worker.tasks.task import Task
from paceline.worker.transform.precision import Numbers
from paceline.worker.update import Update
from paceline.worker.world.join import World


def build_step(
    spec: Spec, task: Task, sharded: Sharded, update: Update, numbers: Numbers, world: World, watch: Stopwatch
) -> Step:
    if spec.graph != "eager":
        raise RunFailed(f"graph={spec.graph}: not built yet", kind="mismatch")
    return EagerStep(
        sharded.module, task, update, sharded.sharding, numbers, watch,
        num_ranks=world.size, batch=spec.batch, accumulate=spec.accumulate,
    )  # fmt: skip
