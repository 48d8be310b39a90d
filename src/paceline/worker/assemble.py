"""The order in which settings are applied to a model, on one page, and what was really applied, read back from the objects.

model -> device -> precision -> same start on every rank -> kernel -> recomputation -> sharding -> optimizer -> graph -> step. Each
line says why it is not earlier.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.records.fingerprint import version
from paceline.spec.run import Spec
from paceline.worker.measure.allocator import Cuda, HostMemory
from paceline.worker.measure.arrivals import Arrivals
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.energy import Meter
from paceline.worker.measure.memory import Memory
from paceline.worker.measure.traffic import Traffic
from paceline.worker.seed import kept, seed_everything
from paceline.worker.sharding.build import not_as_asked, shard
from paceline.worker.sharding.equal_steps import check_equal_steps
from paceline.worker.sharding.lookup import Exchange
from paceline.worker.sharding.replicate import same_start
from paceline.worker.sharding.sharding import Sharding
from paceline.worker.sharding.tables import build_cut
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.sharding.units import units
from paceline.worker.shared_data import Feeds, place_data
from paceline.worker.step import Step
from paceline.worker.steps import build_step
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.order import Piece
from paceline.worker.tasks.task import Task, users_code
from paceline.worker.transform import accelerated, fp8, kernel, optim, precision, remat
from paceline.worker.transform.flow import Flow
from paceline.worker.transform.scale import LossScale, nothing_trained
from paceline.worker.transform.schedule import length, schedule, top_lr
from paceline.worker.transform.sparse import sparse_parameters
from paceline.worker.update import Update
from paceline.worker.world.collectives import carried
from paceline.worker.world.join import World
from paceline.worker.wrapped_step import AcceleratedStep, Guarded


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the loop needs, put together once."""

    spec: Spec
    world: World
    task: Task
    model: torch.nn.Module
    task_module: TaskModule
    arithmetic: precision.Arithmetic
    sharding: Sharding
    optimizer: torch.optim.Optimizer
    update: Update
    step: Step
    train: Feed
    test: Feed
    watch: Stopwatch
    arrivals: Arrivals
    memory: Memory
    energy: Meter
    traffic: Traffic


def assemble(spec: Spec, task: Task, feeds: Feeds, world: World, watch: Stopwatch, host: HostMemory) -> Parts:
    precision.set_products(spec, world.device)
    seed_everything(spec.seed)  # before the model: every rank draws the same weights
    model = (
        build_cut(task, Exchange(world, watch), split=spec.table_split)
        if spec.sharding == "embedding"
        else task.build_model()
    )
    # before the optimizer, which holds on to the tensors it is given
    model = model.to(device=world.device, dtype=precision.dtype(spec))
    same_start(model, world)
    feeds = place_data(spec, task, feeds, world)
    check_equal_steps(feeds.train.num, spec, world)
    task_module = TaskModule(model, task, precision.entrance(spec, world.device))
    if spec.kernel == "fused":  # before anything is hung on layers: they are replaced, and keep their parameters
        feed = feeds.test if feeds.test.num > 1 else feeds.train
        num = min(2, feed.num)
        with users_code(task.name, task.source):
            batch = feed.walk([Piece(np.arange(num), num)]).take(0)
            kernel.fuse(model).prove(
                lambda: task_module(batch),
                lambda: task.loss_sum(task_module(batch), batch, num)[0],
                lambda: kept(world.device),
            )
    float8 = None
    if spec.precision == "fp8":  # after the weights are where they stay: layers are replaced, and keep them
        float8 = fp8.convert(task_module, world.device)
        model = task_module.model
    flow = Flow(model) if spec.wrap == "none" else None
    if spec.remat != "none":  # before sharding, whose hooks must be outside of what is computed again
        remat.apply(spec, model, units(task, model))
    sharded = shard(spec, task, task_module, world, watch)
    # after sharding, which may replace parameters
    optimizer = optim.build(model.parameters(), spec, sparse=sparse_parameters(model))
    arithmetic = precision.Arithmetic(
        spec, world.device, flow, by_policy=spec.sharding == "fsdp", float8=float8, aside=lambda: kept(world.device),
    )  # fmt: skip
    update = Update(
        optimizer, sharded.sharding, schedule(spec, length(spec, feeds.train.num)), clip=spec.clip,
        scale=LossScale() if spec.precision == "fp16" and spec.wrap == "none" else None,
    )  # fmt: skip
    if spec.wrap == "accelerate":
        step: Step = _accelerated(spec, task, model, update, world, watch)
    else:
        step = build_step(spec, task, task_module, sharded, update, arithmetic, world, watch, feeds.train)
    # After the model: from here on each rank has a stream of its own, but ranks that see the same samples draw the same.
    seed_everything(spec.seed, rank=sharded.sharding.share.index)
    allocator, why = (Cuda(world.device), None) if world.device.type == "cuda" else host
    single_graph = "forward" not in step.phases
    if single_graph and world.device.type == "cpu":
        allocator, why = None, "the step is one graph, and on a host nobody counts what it takes inside"
    memory = Memory(model, optimizer, allocator, why, watch, graphs=step.num_made, single_graph=single_graph)
    return Parts(
        spec, world, task, model, task_module, arithmetic, sharded.sharding, optimizer, update, step, feeds.train, feeds.test, watch,
        Arrivals(world, watch), memory, Meter(world.device, leads=world.local_rank == 0), Traffic(world),
    )  # fmt: skip


def _accelerated(
    spec: Spec, task: Task, model: torch.nn.Module, update: Update, world: World, watch: Stopwatch
) -> AcceleratedStep:
    """Only the step has the wrapped objects: evaluation, hash, weights and read-back see the plain model and the real optimizer.

    So evaluation is in the format of the weights, which under mixed precision is fp32.
    """
    flow = Flow(model)
    prepared = accelerated.prepare(Guarded(model, task, flow), update.optimizer, spec, world)
    return AcceleratedStep(prepared, task, update, flow, world, watch, precision=spec.precision)


def read_back(parts: Parts, computed: tuple[str, ...] = ()) -> dict[str, Any]:
    """From the objects themselves: this is the evidence. `buffers` is the rule used.

    What layers computed in is known after the first step, so mixed precision shows only then; a rank that had no sample in any
    step is told it (`computed`).
    """
    group = parts.optimizer.param_groups[0]
    dtypes = precision.floating(parts.model.parameters())
    computed = parts.step.computed or computed
    arithmetic = parts.arithmetic.read_back()
    return {
        "world_size": parts.world.size,
        "backend": parts.world.backend,
        "messages": carried(parts.world),
        **({"mpi": parts.world.library} if parts.world.library else {}),
        "device": parts.world.device.type,
        "threads": torch.get_num_threads(),
        "dtypes": {"parameters": dtypes, **({"compute": list(computed)} if computed else {})},
        "precision": precision.word(
            dtypes, computed, tf32=any(arithmetic["tf32"].values()), fp8=bool(arithmetic.get("fp8", {}).get("ran"))
        ),
        **arithmetic,
        **parts.step.read_back(),
        **parts.update.read_back(),
        "remat": remat.read_back(parts.model),
        **({"recomputed": remat.recomputed(parts.model)} if parts.spec.remat != "none" else {}),
        **kernel.read_back(parts.model),
        "sharding": parts.sharding.word,
        "exchange": parts.sharding.read_back(),
        "buffers": parts.spec.buffers,
        "optimizer": {
            **optim.classes(parts.optimizer),
            **({"update": way} if (way := optim.way(parts.optimizer)) else {}),
            **{name: group[name] for name in ("lr", "weight_decay", "momentum", "nesterov") if name in group},
        },
        "data": {"train": parts.train.kind, "test": parts.test.kind},
        "task": parts.task.defines,
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": version("numpy"),
            "paceline": version("paceline"),
        },
    }


def check(spec: Spec, applied: dict[str, Any]) -> None:
    """asked == got, or the run fails in one sentence before its first step.

    Of mixed precision this is the weights' part; the step compares what was computed, before the first update.
    """
    asked = {
        "world_size": spec.topology.world_size, "backend": spec.backend, "device": spec.device,
        "threads": spec.threads, "precision": "fp32" if precision.is_mixed(spec) else spec.precision,
        "sharding": spec.sharding, "remat": spec.remat, "kernel": spec.kernel, **_between(spec),
    }  # fmt: skip
    wrong = [f"{name} {want}, got {applied[name]}" for name, want in asked.items() if applied[name] != want]
    wrong += _products(spec, applied)
    if applied["optimizer"]["class"].lower().removeprefix("sparse") != spec.optimizer:
        wrong.append(f"optimizer {spec.optimizer}, got {applied['optimizer']['class']}")
    wrong += not_as_asked(spec, applied.get("exchange", {}))
    update: dict[str, Any] = applied["optimizer"]
    for name, want in (
        ("lr", top_lr(spec)),
        *((name, getattr(spec, name)) for name in ("update", "weight_decay", "momentum", "nesterov")),
    ):
        if name in update and update[name] != want:
            wrong.append(f"{name} {want}, got {update[name]}")
    if wrong:
        raise RunFailed(f"asked for {'; '.join(wrong)}", kind="mismatch")


def _products(spec: Spec, applied: dict[str, Any]) -> list[str]:
    """Convolutions and matrix products may each be rounded to TF32 without a word in any dtype."""
    want = spec.precision == "tf32"
    got: dict[str, bool] = applied.get("tf32", {})
    return [f"tf32={want} for a {name}, got {found}" for name, found in got.items() if found != want]


def _between(spec: Spec) -> dict[str, str]:
    """What carries sums between ranks; alone there is nothing to carry."""
    return {"messages": spec.messages} if spec.topology.world_size > 1 else {}


def graph_not_as_asked(spec: Spec, seen: dict[str, Any]) -> list[str]:
    """A graph is there when a step went through it: before the first one there is nothing to compare."""
    asked = (spec.graph, None if spec.graph == "eager" else spec.graph_of)
    if (seen["graph"], seen["graph_of"]) == asked:
        return []
    few = (
        " (its first steps are ordinary ones: use more steps)"
        if spec.graph == "captured" or spec.graph_of == "step"
        else ""
    )
    return [f"graph {spec.graph} of the {spec.graph_of}, got {seen['graph']}{few}"]


def check_steps(spec: Spec, seen: dict[str, Any]) -> None:
    """The same for what only the steps could show."""
    wrong = _products(spec, seen)  # the task's own code ran since they were set
    wrong += not_as_asked(spec, seen["exchange"], after_steps=True)
    if not wrong and seen["precision"] != spec.precision:
        wrong.append(f"precision {spec.precision}, got {seen['precision']}")
    wrong += graph_not_as_asked(spec, seen)
    wrong += [f"{name} {want}, got {seen[name]}" for name, want in _between(spec).items() if seen[name] != want]
    rates: dict[str, Any] = seen["rate"]
    if rates["lr"] != [rates["scheduled"]]:
        wrong.append(f"schedule {spec.schedule}, whose last rate is {rates['scheduled']}, got {rates['lr']}")
    if (seen["clip"] or {}).get("at") != spec.clip:
        wrong.append(f"clip {spec.clip}, got {seen['clip']}")
    if wrong:
        raise RunFailed(f"asked for {'; '.join(wrong)} after the last step", kind="mismatch")
    if why := remat.nothing_recomputed(spec, seen.get("recomputed", 0)):
        raise RunFailed(why, kind="mismatch")
    if why := nothing_trained(seen.get("scaler") or seen.get("accelerate")):
        raise RunFailed(why, kind="nonfinite")
    if seen["accumulate"] != spec.accumulate:
        raise RunFailed(
            f"asked for accumulate={spec.accumulate}, but no rank's step had more than {seen['accumulate']} micro-batches: the data "
            "has too few samples",
            kind="mismatch",
        )
