"""The state of ranks that train together, copied out and put back: `round_trip.py` in a world of one and of two, for `test_state.py`.

Forked from one process that has imported torch. accelerate reads the environment, so its rank announces itself as a real one does.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import traceback
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from paceline.worker.assemble import Parts
from paceline.worker.tasks.task import Task
from paceline.worker.world.env import Identity, announce
from paceline.worker.world.join import World
from round_trip import NUM, round_trip, spec_of, task

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": "adam", "clip": 0.5},
    "adamw": {"optimizer": "adamw", "weight_decay": 0.1, "schedule": "onecycle"},
    "sgd": {"optimizer": "sgd", "momentum": 0.9, "schedule": "cosine"},
    "rmsprop": {"optimizer": "rmsprop", "momentum": 0.5, "lr": 0.001},
}
WAYS: dict[str, dict[str, Any]] = {
    "eager": {},
    "compiled": {"graph": "compile", "graph_of": "step"},
    "model-graph": {"graph": "compile", "graph_of": "model"},
    "ddp": {"sharding": "ddp"},
    "fsdp": {"sharding": "fsdp"},
    "local": {"sync_every": 3},
    "accelerate": {"wrap": "accelerate"},
}
ALONE = ("accelerate", "fsdp")  # in a world of one: the rest is tests/unit/worker/step/test_state.py


class Ids(nn.Module):
    """Looks rows up: for tables that are cut over ranks, with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 6, sparse=True), nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.table((x[:, 0].abs() * 5).long().clamp(max=19)))


class Noisy(torch.utils.data.Dataset[Any]):
    """Draws at random for each sample; in loader processes, whose streams no state holds."""

    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((6,), index / NUM) + torch.rand(6) + random.random() + np.random.rand(), index % 4


def quick(parts: Parts) -> Parts:
    """torch's quick compiler: the same graphs, without C++."""
    if parts.spec.graph == "compile":
        torch._dynamo.reset()
        cast("Any", parts.step)._compiler.backend = "aot_eager"
    return parts


def cases(world: World) -> dict[str, tuple[dict[str, Any], Task]]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    ways = {name: asked for name, asked in WAYS.items() if world.size > 1 or name in ALONE}
    rows = {f"{way} {name}": ({**asked, **more}, task()) for way, asked in ways.items() for name, more in OPTIMIZERS.items()}
    if world.size == 1:
        rows["loader adam"] = ({"workers": 2, **OPTIMIZERS["adam"]}, replace(task(), train_data=Noisy))
    if world.size > 1:
        plan = replace(task(), tensor_plan=lambda _: {"0": ColwiseParallel(), "4": RowwiseParallel()})
        plain = replace(plan, model=lambda: nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4)))
        plain = replace(plain, tensor_plan=lambda _: {"0": ColwiseParallel(), "2": RowwiseParallel()})
        tables = replace(task(), model=Ids)
        for name, more in OPTIMIZERS.items():
            rows[f"tensor {name}"] = ({"sharding": "tensor", **more}, plain)
        for name in ("adam", "sgd"):
            more = {"optimizer": name, "clip": 0.5}
            rows[f"embedding {name}"] = ({"sharding": "embedding", **more}, tables)
    return rows


def one_rank(rank: int, size: int, folder: Path) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(folder / f"store{size}"), size), rank=rank, world_size=size
    )
    world = World(rank=rank, size=size, local_rank=rank, host="here", device=torch.device("cpu"), backend="gloo")
    announce(Identity(rank, size, rank, "local", "here"), local_world_size=size, on_cpu=True)
    rows: dict[str, Any] = {}
    for name, (asked, own) in cases(world).items():
        try:
            spec = spec_of(on=f"1x{size}", messages="backend", **asked)
            rows[name] = {k: v for k, v in round_trip(spec, world, own, prepare=quick).items() if k != "weights"}
        except Exception:
            rows[name] = {"broke": traceback.format_exc()}
            break  # the other rank may be somewhere else now
    (folder / f"{size}-{rank}.json").write_text(json.dumps(rows))
    dist.destroy_process_group()


def main(folder: Path) -> None:
    fork = multiprocessing.get_context("fork")
    for size in (1, 2):
        ranks = [fork.Process(target=one_rank, args=(rank, size, folder)) for rank in range(size)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
