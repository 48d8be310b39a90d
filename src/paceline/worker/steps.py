"""From the settings to the step: the one place that chooses how much of it is a graph."""

from __future__ import annotations

from paceline.spec.run import Spec
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.sharding.build import Sharded
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.step import EagerStep, Step
from paceline.worker.tasks.feed import Feed, TensorFeed
from paceline.worker.tasks.task import Task
from paceline.worker.transform.precision import Arithmetic
from paceline.worker.update import Update
from paceline.worker.world.collectives import largest
from paceline.worker.world.join import World


def build_step(
    spec: Spec,
    task: Task,
    task_module: TaskModule,
    sharded: Sharded,
    update: Update,
    arithmetic: Arithmetic,
    world: World,
    watch: Stopwatch,
    feed: Feed,
) -> Step:
    eager = EagerStep(
        sharded.module, task, update, sharded.sharding, arithmetic, watch,
        num_ranks=sharded.sharding.share.num, batch=spec.batch, accumulate=spec.accumulate,
        largest=lambda value: largest([value], world)[0],
    )  # fmt: skip
    return eager if spec.graph == "eager" else _with_graph(spec, eager, task_module, sharded, world, feed)


def _with_graph(
    spec: Spec, eager: EagerStep, task_module: TaskModule, sharded: Sharded, world: World, feed: Feed
) -> Step:
    """Imports of its own: torch's compiler takes a second, which nobody else should pay."""
    from paceline.worker.captured_step import CapturedStep
    from paceline.worker.compiled_step import CompiledStep
    from paceline.worker.graph_step import ModelGraphStep
    from paceline.worker.measure.compiles import Compiles
    from paceline.worker.transform.graph import Compiler

    assert isinstance(spec.threads, int)
    compiles = Compiles(eager.watch)
    moves_beta = spec.schedule == "onecycle" and spec.optimizer in ("adam", "adamw")
    data = feed.tensors if isinstance(feed, TensorFeed) else None
    if spec.graph == "captured":
        return CapturedStep(eager, task_module, compiles, moves_beta=moves_beta, data=data)
    if spec.graph == "export":
        return ModelGraphStep(eager, sharded.module, task_module, compiles, None)
    compiler = Compiler(world.device, threads=spec.threads, kept=spec.graph_cache == "keep")
    compiler.meet_machine()
    if spec.graph_of == "step":
        return CompiledStep(eager, task_module, compiles, compiler, moves_beta=moves_beta, data=data)
    return ModelGraphStep(eager, sharded.module, task_module, compiles, compiler)
