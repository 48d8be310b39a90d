"""The order in which settings are applied to a model, on one page. What was then really applied is read back in `applied.py`.

model -> device -> precision -> same start on every rank -> kernel -> recomputation -> sharding -> optimizer -> graph -> step. Each
line says why it is not earlier.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from paceline.spec.axes.schedules import SCHEDULES
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.run import Spec
from paceline.worker.ends import Ends
from paceline.worker.measure.allocator import Allocator, Cuda, HostMemory, Left
from paceline.worker.measure.arrivals import Arrivals
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.energy import Meter
from paceline.worker.measure.memory import Memory
from paceline.worker.measure.traffic import Traffic
from paceline.worker.optim.build import build_optimizer
from paceline.worker.optim.own_schedule import own_schedule
from paceline.worker.optim.rates import Rates
from paceline.worker.optim.scale import LossScale
from paceline.worker.optim.schedule import Length, Rate, length, moves, schedule, top_lr
from paceline.worker.sharding.build import shard
from paceline.worker.sharding.equal_steps import check_equal_steps
from paceline.worker.sharding.lookup import Exchange
from paceline.worker.sharding.replicate import same_start
from paceline.worker.sharding.sharding import Sharding
from paceline.worker.sharding.tables import build_cut
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.sharding.units import units
from paceline.worker.shared_data import Feeds, place_data
from paceline.worker.step.accelerated import AcceleratedStep, Guarded
from paceline.worker.step.build import build_step
from paceline.worker.step.description import StepDescription
from paceline.worker.step.executor import Step, StepParts
from paceline.worker.step.state import TrainState
from paceline.worker.step.together import Together
from paceline.worker.step.update import Update
from paceline.worker.tasks.by_number import ByNumber
from paceline.worker.tasks.feed import Feed, TensorFeed
from paceline.worker.tasks.order import Piece
from paceline.worker.tasks.task import Task, users_code
from paceline.worker.transform import accelerated, fp8, kernel, precision, remat, synced_norm
from paceline.worker.transform.flow import Flow
from paceline.worker.world.join import World
from paceline.worker.world.seed import kept, seed_everything

Counting = tuple[Allocator | None, str | None]  # who counts the bytes of this run, or why nobody does


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the loop needs, put together once."""

    spec: Spec
    world: World
    task: Task
    arithmetic: precision.Arithmetic
    sharding: Sharding
    state: TrainState
    step_parts: StepParts
    step: Step
    train: Feed
    test: Feed
    watch: Stopwatch
    arrivals: Arrivals
    memory: Memory
    energy: Meter
    traffic: Traffic
    by_number: ByNumber
    ends: Ends
    data_left: Left

    @property
    def task_module(self) -> TaskModule:
        return self.step_parts.task_module

    @property
    def model(self) -> torch.nn.Module:
        return self.state.model

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.state.optimizer

    @property
    def update(self) -> Update:
        return self.step_parts.update


def assemble(spec: Spec, task: Task, feeds: Feeds, world: World, watch: Stopwatch, host: HostMemory) -> Parts:
    precision.set_products(spec, world.device)
    seed_everything(spec.seed)  # before the model: every rank draws the same weights
    model = (
        build_cut(task, Exchange(world, watch), split=spec.table_split)
        if SHARDINGS[spec.sharding].cuts_tables
        else task.build_model()
    )
    # before the optimizer, which holds on to the tensors it is given
    model = model.to(device=world.device, dtype=precision.dtype(spec))
    same_start(model, world)
    allocator, why = _allocator(world, host)
    # of a GPU what lies on it counts: what loading took of the host is not its allocator's
    feeds = place_data(spec, task, feeds, world, Left(allocator) if world.device.type == "cuda" else feeds.left)
    check_equal_steps(feeds.train.num, spec, world, waits_as=task.waits_as)
    task_module = TaskModule(model, task, precision.entrance(spec, world.device))
    if spec.kernel == "fused":  # before anything is hung on layers: they are replaced, and keep their parameters
        _fuse(task_module, feeds, world)
    if spec.buffers == "sync":  # the same: it is the layer's own forward that is replaced
        synced_norm.synchronize(task_module.model, world, watch.aside)
    float8 = None
    if spec.precision == "fp8":  # after the weights are where they stay: layers are replaced, and keep them
        float8 = fp8.convert(task_module, world.device)
    flow = Flow(task_module.model) if spec.wrap == "none" else None
    if spec.remat != "none":  # before sharding, whose hooks must be outside of what is computed again
        remat.apply(spec, task_module.model, units(task, task_module.model))
    sharding = shard(spec, task, task_module, world, watch)
    arithmetic = precision.Arithmetic(
        spec, world.device, flow, by_policy=SHARDINGS[spec.sharding].precision_policy, float8=float8,
        aside=lambda: kept(world.device),
    )  # fmt: skip
    # after sharding, which may replace parameters
    state = _state(spec, task_module, sharding, world)
    run = length(spec, feeds.train.num)
    rates = Rates(state.optimizer, _schedule(spec, task, state, run), top_lr(spec), moves=moves(spec))
    together = Together(world, watch) if task.couples and sharding.share.num > 1 else None
    in_one_piece = sharding.share.num == 1 and spec.accumulate == 1
    parts = StepParts(
        task_module,
        StepDescription(task, arithmetic, in_one_piece=in_one_piece, together=together),
        state, Update(state, sharding, rates, clip=spec.clip), sharding, world, watch, spec.batch,
        feeds.train if isinstance(feeds.train, TensorFeed) else None,
    )  # fmt: skip
    step: Step = _accelerated(spec, parts) if spec.wrap == "accelerate" else build_step(spec, parts)
    # After the model: from here on each rank has a stream of its own, but ranks that see the same samples draw the same.
    seed_everything(spec.seed, rank=sharding.share.index)
    return Parts(
        spec, world, task, arithmetic, sharding, state, parts, step, feeds.train, feeds.test, watch, Arrivals(world, watch),
        _memory(state, step, (allocator, why), watch), Meter(world.device, leads=world.local_rank == 0), Traffic(world),
        ByNumber(task, task_module.model, run.steps, run.epochs), Ends(spec, task, world, state),
        feeds.left,
    )  # fmt: skip


def _fuse(task_module: TaskModule, feeds: Feeds, world: World) -> None:
    """Our kernels in place of layers, proved on two samples."""
    task = task_module.task
    feed = feeds.test if feeds.test.num > 1 else feeds.train
    num = min(2, feed.num)
    with users_code(task.name, task.source):
        batch = feed.walk([Piece(np.arange(num), num)]).take(0)
        kernel.fuse(task_module.model).prove(
            lambda: task_module(batch),
            lambda: task.loss_of(task_module(batch), batch, num).total,
            lambda: kept(world.device),
        )


def _state(spec: Spec, task_module: TaskModule, sharding: Sharding, world: World) -> TrainState:
    optimizer = build_optimizer(task_module.model, spec, task_module.task)
    scale = LossScale() if spec.precision == "fp16" and spec.wrap == "none" else None
    return TrainState(task_module.model, optimizer, world.device, scale, others={"sharding": sharding})


def _schedule(spec: Spec, task: Task, state: TrainState, run: Length) -> Callable[[int], Rate]:
    if SCHEDULES[spec.schedule].is_tasks:
        return own_schedule(task, state.optimizer, run, top=top_lr(spec))
    return schedule(spec, run)


def _allocator(world: World, host: HostMemory) -> Counting:
    return (Cuda(world.device), None) if world.device.type == "cuda" else host


def _memory(state: TrainState, step: Step, counting: Counting, watch: Stopwatch) -> Memory:
    allocator, why = counting
    single_graph = "forward" not in step.phases and step.num_made() is not None
    if single_graph and state.device.type == "cpu":
        allocator, why = None, "the step is one graph, and on a host nobody counts what it takes inside"
    return Memory(state.model, state.optimizer, allocator, why, watch, graphs=step.num_made, single_graph=single_graph)


def _accelerated(spec: Spec, parts: StepParts) -> AcceleratedStep:
    """Only the step has the wrapped objects: evaluation, hash, weights and read-back see the plain model and the real optimizer.

    So evaluation is in the format of the weights, which under mixed precision is fp32.
    """
    model, task = parts.task_module.model, parts.task_module.task
    flow = Flow(model)
    prepared = accelerated.prepare(Guarded(model, task, flow), parts.state.optimizer, spec, parts.world)
    return AcceleratedStep(parts, prepared, flow, precision=spec.precision)
