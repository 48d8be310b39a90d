"""What a worker is started for, a few lines each: train a run, or describe a user's task."""

from __future__ import annotations

import importlib
from contextlib import closing
from typing import Any

import torch

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import read_json, write_json
from paceline.base.names import unknown
from paceline.records.events import Applied, EventLog, Finished
from paceline.records.facts import DataFacts, TaskFacts
from paceline.records.layout import RunDir
from paceline.records.split import STARTUP, worked
from paceline.spec.rules.sharding import nbytes
from paceline.spec.run import Spec
from paceline.spec.settings import names
from paceline.worker.assemble import Parts, assemble, check, check_steps, read_back
from paceline.worker.kernels.build import library
from paceline.worker.kernels.gather import kernel
from paceline.worker.loop import train
from paceline.worker.measure.allocator import host_memory
from paceline.worker.measure.cap import Cap
from paceline.worker.measure.clock import Stopwatch, wall
from paceline.worker.measure.observer import Observer
from paceline.worker.measure.tally import LOSS
from paceline.worker.measure.timeline import following
from paceline.worker.profile import finished, profile
from paceline.worker.resilience.weights import fingerprint, save
from paceline.worker.seed import seed_everything
from paceline.worker.sharding.tables import build_outline
from paceline.worker.shared_data import SharedFeed, load_data
from paceline.worker.tasks.feed import TensorFeed, make_feed
from paceline.worker.tasks.load import find, load_task, source_digest, values_for
from paceline.worker.tasks.task import Task, better_of, users_code, usual_score
from paceline.worker.transform.remat import nothing_recomputed
from paceline.worker.transform.sparse import sparse_parameters
from paceline.worker.world.collectives import agree, broadcast_json, largest
from paceline.worker.world.env import Identity, announce
from paceline.worker.world.join import World, check_identity, join
from paceline.worker.world.pin import pin, pinned
from paceline.worker.world.pulse import OnLoss

_LIBRARIES = {"fsdp": "torch.distributed.fsdp", "tensor": "torch.distributed.tensor.parallel"}


def run_training(run: RunDir, identity: Identity, log: EventLog, watch: Stopwatch, on_loss: OnLoss) -> World:
    """The order of a rank's life. The stopwatch is in a part of the start-up until the first batch is fetched."""
    spec = Spec.model_validate(read_json(run.spec))
    cores = pin(spec, identity)  # before there are threads
    load_libraries(spec)
    host = host_memory()  # before there is anything worth counting
    cap = Cap()
    if spec.memory_cap and spec.device == "cpu":
        cap.on_host(spec.memory_cap)
    watch.switch(f"{STARTUP}data")
    check_identity(identity, spec)
    task = load_task(spec.task, spec.params, spec.data)
    feeds = load_data(spec, task, rank=identity.rank, local_rank=identity.local_rank)
    watch.switch(f"{STARTUP}meeting")
    cap.before_threads()
    world = join(identity, spec, run, on_loss)
    watch.switch(f"{STARTUP}model")
    watch = following(watch, world.device)
    if spec.memory_cap and spec.device == "cuda":
        cap.on_device(spec.memory_cap, world.device)
    if (
        spec.wrap == "accelerate" and world.size > 1
    ):  # alone it needs nothing, and told more it would wrap one process for many
        announce(identity, local_world_size=spec.topology.processes, on_cpu=spec.device == "cpu")
    parts = assemble(spec, task, feeds, world, watch, host)
    same_source(task, spec)
    applied = {**read_back(parts), "memory_cap": cap.nbytes, "pin": pinned(cores)}
    log.write(Applied(values=applied, t=wall()))
    check(spec, applied)
    check_system(spec, applied)
    if spec.profile != "none":
        profile(parts, run)
        seen = {**applied, **read_back(parts), "optimizer": applied["optimizer"]}
        log.write(Applied(values=seen, t=wall()))
        if spec.profile == "training" and (why := nothing_recomputed(spec, seen.get("recomputed", 0))):
            raise RunFailed(why, kind="mismatch")
        log.write(finished(parts))
        return world
    with closing(parts.step):  # on every way out: a failed run leaves no compiler's cache either
        observe = Observer(run, world, log)
        parts.energy.start()
        watch.switch(f"{STARTUP}meeting")
        agree(0, world)  # nobody's first step begins with waiting for somebody's start-up
        began = watch.elapsed()
        total = train(parts, observe)
        training_s = watch.elapsed() - began
        watch.switch("checkpoint")
        energy = parts.energy.stop()
        # Some things only the steps could tell; the optimizer stays as it began, because its learning rate may decay.
        first = broadcast_json(list(parts.step.computed), world)  # rank 0 always has a sample
        assert isinstance(first, list)
        seen = {
            **read_back(parts, tuple(first)),
            "memory_cap": cap.nbytes,
            "pin": pinned(cores),
            "optimizer": applied["optimizer"],
            "accumulate": agree(parts.step.num_micro(), world)[1],
        }
        if spec.sync_every > 1 and seen["clip"]:  # each rank clipped gradients of its own
            steps, longest = largest([seen["clip"]["steps"], seen["clip"]["longest"]], world)
            seen["clip"] |= {"steps": int(steps), "longest": longest}
        if spec.remat != "none":  # a rank may have had no sample
            seen["recomputed"] = agree(seen["recomputed"], world)[1]
        log.write(Applied(values=seen, t=wall()))
        check_steps(spec, seen)
        check_system(spec, seen)
        digest = fingerprint(parts.model, parts.sharding.in_parts)
        save(parts.model, run.weights, in_parts=parts.sharding.in_parts, writes=world.rank == 0)
        watch.switch("shutdown")
        watch.settle()
        observe.close()
        main = next((name for name in total.names if name != LOSS), None)
        clock, startup = worked({name: seconds for name, seconds in watch.parts.items() if name != "shutdown"})
        log.write(
            Finished(
                parts=parts.arrivals.split(clock), startup=startup, hidden_s=parts.step.hidden_s(), late=parts.arrivals.late(),
                energy=energy, ahead_s=parts.arrivals.ahead_s, traffic=parts.traffic.per_step(), graph=parts.step.finish(),
                training_s=training_s, memory=parts.memory.close(data_bytes=_data_bytes(parts), data_shared=_data_shared(parts)),
                weights_hash=digest, cores=cores,
                num_parameters=parts.sharding.num_parameters(),
                score={"name": main, "better": better_of(task, main)},
                t=wall() - watch.spent("shutdown"),  # that part begins here, and ends where the parent sees the process end
            )
        )  # fmt: skip
    return world


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
    if (spec.graph, spec.graph_of, spec.device, spec.threads) == ("compile", "step", "cpu", 1):
        kernel()
    if spec.sharding in _LIBRARIES:
        importlib.import_module(_LIBRARIES[spec.sharding])


def _data_bytes(parts: Parts) -> int | None:
    """Of data that is held as tensors, each storage once: training and test set may be views of one array."""
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
    if task.source is not None and source_digest(task.source) != spec.source_sha256:
        raise RunFailed(
            f"{task.name}: the file, or a module beside it, was changed after this run was planned; give the command again",
            kind="mismatch",
        )


def describe(run: RunDir) -> None:
    """Import a task and say what the parent must know: parameters, sizes, defaults, layers, the GPUs. Writes facts.json."""
    asked: dict[str, Any] = read_json(run.request)
    found = find(asked["task"])
    known = [param.name for param in found.params]
    wrong = [unknown("setting or parameter", name, [*known, *names()]) for name in asked["params"] if name not in known]
    values: dict[str, Any] = {}
    for param in found.params:
        try:
            values |= values_for((param,), asked["params"])
        except ValueError as error:
            wrong.append(str(error))
    lacking = [param.name for param in found.params if param.required and param.name not in asked["params"]]
    wrong += [f"{found.name}: parameter {name!r} has no default: give {name}=..." for name in lacking]
    taken = [name for name in known if name in names()]
    wrong += [
        f"{found.name}: its parameter {name!r} has the name of a setting, so it would never be given: rename it"
        for name in taken
    ]
    if asked["data"] is not None and not found.takes_data:
        wrong.append(f"{found.name}: takes no data=; add a parameter `data` to it")
    wrong += [
        f"{found.name}: its defaults name an {unknown('setting', key, names())}"
        for key in found.defaults
        if key not in names()
    ]
    if wrong:
        raise BadInput(wrong)
    task = found.build(values, asked["data"])
    seed_everything(asked["seed"])
    model = build_outline(task) if asked.get("outline") else task.build_model()
    facts = TaskFacts(
        params=found.params, values=values, defaults=found.defaults, takes_data=found.takes_data,
        train=_data_facts(task, "train"), test=_data_facts(task, "test"),
        num_parameters=sum(p.numel() for p in model.parameters()),
        source_sha256=source_digest(found.source) if found.source else None,
        knows_better=task.better is not None or task.score is usual_score, layers=_layers(model), capability=_capability(),
        has_tensor_plan=task.tensor_plan is not None, num_sparse=len(sparse_parameters(model)),
        num_tables=sum(isinstance(module, torch.nn.Embedding) for module in model.modules()),
    )  # fmt: skip
    write_json(run.facts, facts.plain())


def _data_facts(task: Task, split: str) -> DataFacts:
    what = f"{task.name}: {split}_data()"
    with users_code(what, task.source):
        data = task.train_data() if split == "train" else task.test_data()
        feed = make_feed(data, what=what, collate=task.collate)
    return DataFacts(feed.kind, feed.num)


def _capability() -> tuple[int, int] | None:
    """Of the GPUs here, the least: ranks are spread over all of them."""
    if not torch.cuda.is_available():
        return None
    return min(torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count()))


def _layers(model: torch.nn.Module) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "type": type(module).__name__,
            "shapes": [list(p.shape) for p in module.parameters(recurse=False)],
        }
        for name, module in model.named_modules()
        if not list(module.children())
    ]
