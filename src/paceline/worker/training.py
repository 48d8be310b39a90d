"""The train job: one rank from its spec to its last event. The order of a rank's life, and nothing else."""

from __future__ import annotations

import importlib
from contextlib import closing
from dataclasses import replace
from typing import Any

from paceline.base.errors import RunFailed
from paceline.base.files import read_json
from paceline.records.events import Applied, EventLog, Finished, Warned, main_name
from paceline.records.layout import RunDir
from paceline.records.split import STARTUP, worked
from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.inputs import changed_here
from paceline.spec.rules.sharding import nbytes
from paceline.spec.run import Spec
from paceline.worker.applied import check, check_steps, read_back
from paceline.worker.assemble import Parts, assemble
from paceline.worker.cautions import cautions
from paceline.worker.kernels.build import library
from paceline.worker.kernels.gather import kernel
from paceline.worker.loop import train
from paceline.worker.measure.allocator import Left, host_memory
from paceline.worker.measure.cap import Cap
from paceline.worker.measure.clock import Stopwatch, wall, with_wall
from paceline.worker.measure.observer import Observer
from paceline.worker.measure.tally import Tally
from paceline.worker.measure.timeline import following
from paceline.worker.profile import finished, profile
from paceline.worker.progress import Progress
from paceline.worker.resilience.weights import fingerprint, save
from paceline.worker.sharding.sharding import num_parameters
from paceline.worker.shared_data import SharedFeed, load_data, unlike_described
from paceline.worker.tasks.feed import TensorFeed
from paceline.worker.tasks.load import load_task
from paceline.worker.tasks.task import Task, better_of
from paceline.worker.transform.remat import nothing_recomputed
from paceline.worker.world.amx import avoid_broken_amx
from paceline.worker.world.collectives import agree, all_reduce_max, broadcast_json
from paceline.worker.world.env import Identity, announce
from paceline.worker.world.join import World, check_identity, join
from paceline.worker.world.pin import pin, pinned
from paceline.worker.world.pulse import OnLoss
from paceline.worker.world.seed import seed_everything


def run_training(run: RunDir, identity: Identity, log: EventLog, watch: Stopwatch, on_loss: OnLoss) -> World:
    """The stopwatch is in a part of the start-up until the first batch is fetched."""
    spec = Spec.model_validate(read_json(run.spec))
    cores = pin(spec, identity)  # before there are threads
    if spec.device == "cpu":
        avoid_broken_amx()
    load_libraries(spec)
    host = host_memory()  # before there is anything worth counting
    cap = Cap()
    if spec.memory_cap and spec.device == "cpu":
        cap.on_host(spec.memory_cap)
    watch.switch(f"{STARTUP}data")
    check_identity(identity, spec)
    seed_everything(spec.seed)  # what a file draws while it is imported is the same on every rank
    task = load_task(spec.task, spec.params, spec.data, spec.probe)
    data = Left(host[0])
    with data:
        feeds = load_data(spec, task, rank=identity.rank, local_rank=identity.local_rank)
    feeds = replace(feeds, left=data)
    other_data = unlike_described(spec, feeds)
    watch.switch(f"{STARTUP}meeting")
    cap.before_threads()
    world = join(identity, spec, run, on_loss)
    watch.switch(f"{STARTUP}model")
    watch = following(watch, world.device)
    if spec.memory_cap and spec.device == "cuda":
        cap.on_device(spec.memory_cap, world.device)
    if (
        spec.wrap == "accelerate" and world.size > 1
    ):  # a single process needs no variables; with them accelerate would wrap it for several
        announce(identity, local_world_size=spec.topology.processes, on_cpu=spec.device == "cpu")
    parts = assemble(spec, task, feeds, world, watch, host)
    same_source(task, spec)
    system = {"memory_cap": cap.nbytes, "pin": pinned(cores)}
    applied = {**read_back(parts), **system}
    log.write(Applied(values=applied, t=wall()))
    check(spec, applied)
    check_system(spec, applied)
    if world.rank == 0:
        for kind, text in [*cautions(parts), *other_data]:
            log.write(Warned(kind, text, wall()))
    if spec.profile != "none":
        _profile(parts, run, log, applied)
        return world
    with closing(parts.step):  # on every way out: a failed run leaves no compiler's cache either
        _train(parts, run, log, {**system, "optimizer": applied["optimizer"]}, cores)
    return world


def _profile(parts: Parts, run: RunDir, log: EventLog, applied: dict[str, Any]) -> None:
    profile(parts, run)
    seen = {**applied, **read_back(parts), "optimizer": applied["optimizer"]}
    log.write(Applied(values=seen, t=wall()))
    if parts.spec.profile == "training" and (why := nothing_recomputed(parts.spec, seen.get("recomputed", 0))):
        raise RunFailed(why, kind="mismatch")
    log.write(finished(parts))


def _train(parts: Parts, run: RunDir, log: EventLog, fixed: dict[str, Any], cores: Any) -> None:
    """`fixed`: the settings applied before the first step, which stay as they are; the learning rate in them is the initial one."""
    watch, world = parts.watch, parts.world
    observe = Observer(run, world, log)
    parts.energy.start()
    watch.switch(f"{STARTUP}meeting")
    agree(0, world)  # a barrier: no rank's first step waits for another rank's start-up
    began = watch.elapsed()
    total = train(parts, Progress(parts, observe))
    training_s = watch.elapsed() - began
    watch.switch("checkpoint")
    energy = parts.energy.stop()
    seen = {**_after_steps(parts), **fixed}
    log.write(Applied(values=seen, t=wall()))
    check_steps(parts.spec, seen)
    check_system(parts.spec, seen)
    digest = fingerprint(parts.model, parts.sharding.in_parts)
    _save(parts, run)
    watch.switch("shutdown")
    watch.settle()
    spent_s, t = with_wall(lambda: watch.spent("shutdown"))
    shutdown_t = t - spent_s  # where that part begins; it ends where the parent sees the process end
    observe.close()
    clock, startup = worked({name: seconds for name, seconds in watch.parts.items() if name != "shutdown"})
    log.write(
        Finished(
            parts=parts.arrivals.split(clock), startup=startup, hidden_s=parts.step.hidden_s(), late=parts.arrivals.late(),
            energy=energy, ahead_s=parts.arrivals.ahead_s, traffic=parts.traffic.per_step(), graph=parts.step.finish(),
            training_s=training_s, memory=_memory(parts), weights_hash=digest, cores=cores,
            num_parameters=num_parameters(parts.model, parts.sharding.in_parts),
            score=_main_score(parts.task, total), t=shutdown_t, stopped=parts.ends.stopped, best=parts.ends.best_weights(run),
        )
    )  # fmt: skip


def _save(parts: Parts, run: RunDir) -> None:
    """The last weights, and the best beside them where they are others: from here on the model has those."""
    rest: dict[str, Any] = {"in_parts": parts.sharding.in_parts, "writes": parts.world.rank == 0}
    save(parts.model, run.weights, **rest)
    if parts.ends.put_best_back():
        save(parts.model, run.best, **rest)


def _after_steps(parts: Parts) -> dict[str, Any]:
    """What was applied as far as only the steps can tell."""
    world = parts.world
    first = broadcast_json(list(parts.step.computed), world)  # rank 0 always has a sample
    assert isinstance(first, list)
    seen = {**read_back(parts, tuple(first)), "accumulate": agree(parts.step.num_micro(), world)[1]}
    if parts.spec.sync_every > 1 and seen["clip"]:  # each rank clipped gradients of its own
        steps, longest = all_reduce_max([seen["clip"]["steps"], seen["clip"]["longest"]], world)
        seen["clip"] |= {"steps": int(steps), "longest": longest}
    if parts.spec.remat != "none":  # a rank may have had no sample
        seen["recomputed"] = agree(seen["recomputed"], world)[1]
    return seen


def _main_score(task: Task, total: Tally) -> dict[str, Any]:
    main = main_name(total.names)
    return {"name": main, "better": better_of(task, main)}


def check_system(spec: Spec, applied: dict[str, Any]) -> None:
    """asked == got, as the system has it; of a GPU torch keeps a share, which is right to the byte but for rounding."""
    if applied["pin"] != spec.pin:
        raise RunFailed(
            f"asked for pin={spec.pin}, but the threads of this rank have pin={applied['pin']}", kind="mismatch"
        )
    want, got = nbytes(spec.memory_cap) if spec.memory_cap else None, applied["memory_cap"]
    if (want is None) != (got is None) or (want and abs(want - got) > 1 << 10):
        raise RunFailed(f"asked for memory_cap={spec.memory_cap}, but {got} bytes are in force", kind="mismatch")


def load_libraries(spec: Spec) -> None:
    """What torch would import in the middle of things: the first optimizer brings torch._dynamo, a second of start-up and 25 MB."""
    importlib.import_module("torch._dynamo")
    if spec.wrap == "accelerate":
        importlib.import_module("accelerate")
    # the first time a compiler makes them, which must not come under a memory_cap
    if spec.messages == "memory":
        library("reduce")
    if spec.kernel == "fused":
        library("conv")
    if spec.is_step_graph and GRAPHS[spec.graph].needs_compiler and spec.device == "cpu" and spec.threads == 1:
        kernel()
    if (name := SHARDINGS[spec.sharding].library) is not None:
        importlib.import_module(name)


def _memory(parts: Parts) -> dict[str, Any]:
    return parts.memory.close(
        data_bytes=_data_bytes(parts), data_shared=_data_shared(parts), data_held=parts.data_left.nbytes
    )


def _data_bytes(parts: Parts) -> int | None:
    """Bytes of the data that is held as tensors. Each storage counts once: training and test set may be views of one array."""
    storages: dict[int, int] = {}
    for feed in (parts.train, parts.test):
        if not isinstance(feed, TensorFeed):
            return None
        storages |= {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in feed.tensors}
    return sum(storages.values())


def _data_shared(parts: Parts) -> bool:
    """Whether those bytes are held once a machine, and not by this rank alone."""
    return all(isinstance(feed, SharedFeed) for feed in (parts.train, parts.test))


def same_source(task: Task, spec: Spec) -> None:
    """A file edited while a study runs would train something else under the old name."""
    if spec.inputs is not None and (what := changed_here(spec.inputs)):
        raise RunFailed(
            f"{task.name}: {', '.join(what)} was changed after this run was planned; give the command again",
            kind="mismatch",
        )
