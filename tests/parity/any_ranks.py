"""Tasks on ranks, each compared with its plain loop: one start of the ranks for all of them.

`python any_ranks.py FOLDER SIZE`: FOLDER holds `cases.json`, a list of [task, settings and parameters]. Each rank goes through it as a run
does, from the describe job's look and the rules to the last evaluation, and rank 0 writes what came of each case to `SIZE.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import write_json
from paceline.commands.prepare import known_of_file
from paceline.records.facts import TaskFacts
from paceline.records.layout import RunDir
from paceline.spec.host import here
from paceline.spec.resolve import resolve
from paceline.spec.run import Spec
from paceline.spec.settings import names
from paceline.worker.applied import check, read_back
from paceline.worker.assemble import Parts, assemble
from paceline.worker.cautions import cautions
from paceline.worker.describe import describe
from paceline.worker.loop import train
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.progress import Progress
from paceline.worker.shared_data import load_data
from paceline.worker.tasks.load import load_task
from paceline.worker.world.join import World
from paceline.worker.world.seed import seed_everything
from parity.plain import plain

SEED = 7
USUAL: dict[str, Any] = {
    "threads": 1, "device": "cpu", "precision": "fp64", "steps": 7, "batch": 12, "test_batch": 5, "lr": 0.02, "seed": SEED,
    "messages": "backend",
}  # fmt: skip


def described(task: str, params: dict[str, Any], folder: Path) -> TaskFacts | str:
    """Or why it is refused."""
    run = RunDir(folder / hashlib.sha256(f"{task} {params}".encode()).hexdigest()[:12])
    said = run.path / "refused"
    if not run.facts.exists() and not said.exists():
        run.path.mkdir(parents=True, exist_ok=True)
        write_json(run.request, {"task": task, "params": params, "data": None, "seed": SEED})
        _in_a_child(lambda: _describe(run, said))
    if said.exists():
        return said.read_text()
    return TaskFacts.load(json.loads(run.facts.read_text()))


def _describe(run: RunDir, said: Path) -> None:
    try:
        describe(run)
    except (BadInput, RunFailed) as error:
        said.write_text(str(error))


def _in_a_child(job: Callable[[], None]) -> None:
    """As the describe job is one: what it has imported, hooked and drawn ends with it."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            job()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "the describe job failed"


def spec_of(task: str, settings: dict[str, Any], size: int, facts: TaskFacts) -> Spec:
    known, defaults = known_of_file(facts, here())
    own = {name: value for name, value in (USUAL | settings | {"on": f"1x{size}"}).items() if name in names()}
    return resolve(task, own, params=facts.values, defaults=defaults, known=known, source_sha256=facts.source_sha256)


def trained(spec: Spec, world: World) -> tuple[Parts, Any]:
    seed_everything(spec.seed)
    task = load_task(spec.task, spec.params, spec.data, spec.probe)
    feeds = load_data(spec, task, rank=world.rank)
    parts = assemble(spec, task, feeds, world, Stopwatch("startup"), (None, "not asked here"))
    check(spec, read_back(parts))
    observe: Any = SimpleNamespace(write=lambda _: None)
    return parts, train(parts, Progress(parts, observe))


def outcome(spec: Spec, world: World) -> dict[str, Any]:
    parts, total = trained(spec, world)
    made = parts.step.finish() if spec.graph != "eager" else None
    said = [kind for kind, _ in cautions(parts)]
    parts.step.close()
    got = {name: _full(tensor) for name, tensor in parts.model.state_dict().items()}  # all ranks together
    if world.rank:
        return {}
    weights, scores = plain(spec.task, spec)
    assert weights.keys() == got.keys(), (weights.keys(), got.keys())
    means = {name: value for name, value in total.means().items() if not name.startswith("loss")}
    return {
        "weights": max(_apart(weights[name], got[name]) for name in weights),
        "scores": {name: [means.get(name), scores.get(name)] for name in {*means, *scores}},
        "warnings": said, "graph": made is not None, "unknown": parts.task.verdict.unknown,
    }  # fmt: skip


def _full(tensor: Any) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _apart(wanted: torch.Tensor, got: torch.Tensor) -> float:
    if not wanted.is_floating_point():
        return float(not torch.equal(wanted, got))
    scale = max(float(wanted.double().norm()), 1e-6)
    return float((wanted.double() - got.double()).norm()) / scale


def one_rank(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    if size > 1:
        dist.init_process_group(
            "gloo", timeout=timedelta(seconds=60), store=dist.FileStore(str(folder / f"store{size}"), size), rank=rank,
            world_size=size,
        )  # pyright: ignore[reportPrivateImportUsage]  # fmt: skip
    world = World(rank, size, rank, "here", torch.device("cpu"), "gloo")
    with (folder / f"{size}.jsonl").open("w") if rank == 0 else open("/dev/null", "w") as file:
        for task, settings in json.loads((folder / "cases.json").read_text()):
            torch.set_default_dtype(torch.float32)
            torch._dynamo.reset()
            row: dict[str, Any] = {"task": task.rpartition(":")[2], "settings": settings}
            params = {name: value for name, value in settings.items() if name not in names()}
            if rank == 0:
                described(task, params, folder)
            if size > 1:
                dist.barrier()  # one look: two at once would write the same files
            facts = described(task, params, folder)
            try:
                if isinstance(facts, str):
                    raise BadInput(facts)
                row |= outcome(spec_of(task, settings, size, facts), world)
            except (BadInput, RunFailed) as error:
                row["refused"] = str(error)
            except Exception:
                row["error"] = traceback.format_exc()
            file.write(json.dumps(row) + "\n")
            file.flush()
            if size > 1:
                dist.barrier()


def main(folder: Path, size: int) -> None:
    if size == 1:
        one_rank(0, 1, folder)
        return
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=one_rank, args=(rank, size, folder)) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
