"""Sums over two ranks of one machine through gloo and through memory they share, in turn, so that a slow minute is slow for both.

    python benchmarks/messages.py [--json] [--rounds 15] [--ranks 2]

For each size: microseconds a call (median of the rounds; a call is over when it is over on every rank) and the paired ratio of gloo's
time over memory's with its 95 % interval. `step` is what a training step takes: 40 small gradients through `Replicated`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from ratios import ratio
from torch import nn

from paceline.worker.sharding.replicate import Replicated
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.tasks.task import Task, usual_forward, usual_loss, usual_score
from paceline.worker.world.collectives import all_reduce_
from paceline.worker.world.join import World
from paceline.worker.world.shared_all_reduce import SharedAllReduce

SIZES = (4 << 10, 20 << 10, 1 << 20, 16 << 20)
BLOCK_BYTES = 8 << 20  # calls per timing: enough that the clock and the barrier before it do not count
WARM_UP = 3


def seconds(call: Callable[[], Any], *, calls: int) -> float:
    """Seconds per call on the slowest rank, back to back, from a common start."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    took = torch.tensor([(time.perf_counter() - began) / calls], dtype=torch.float64)
    dist.all_reduce(took, op=dist.ReduceOp.MAX)
    return float(took)


def in_turn(calls: dict[str, Callable[[], Any]], *, num: int, rounds: int) -> dict[str, list[float]]:
    walls: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-1, rounds):
        for name, call in calls.items():
            wall = seconds(call, calls=WARM_UP if turn < 0 else num)
            if turn >= 0:
                walls[name].append(wall)
    return walls


def one_rank(rank: int, size: int, folder: str, rounds: int) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", size)
    dist.init_process_group("gloo", store=dist.PrefixStore("world", store), rank=rank, world_size=size)
    board = SharedAllReduce(store, rank=rank, size=size, threads=1, timeout_s=60)
    worlds = {
        name: World(rank, size, rank, "here", torch.device("cpu"), "gloo", shared_all_reduce=through)
        for name, through in (("memory", board), ("gloo", None))
    }
    found: dict[str, dict[str, list[float]]] = {}
    for nbytes in SIZES:
        row = torch.zeros(nbytes // 4)  # zeros stay zeros, however often they are summed
        calls = {name: lambda world=world, row=row: all_reduce_(row, world) for name, world in worlds.items()}
        found[str(nbytes)] = in_turn(calls, num=max(1, min(200, BLOCK_BYTES // nbytes)), rounds=rounds)
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(20)))
    task = Task("messages", lambda: model, list, list, usual_forward, usual_loss, usual_score)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    ways = {name: Replicated(TaskModule(model, task), world) for name, world in worlds.items()}
    found["step"] = in_turn({name: lambda way=way: way.reduce(1) for name, way in ways.items()}, num=200, rounds=rounds)
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def rows(found: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    return [
        {
            "message": what,
            "us": {name: statistics.median(walls) * 1e6 for name, walls in turns.items()},
            "least_us": {name: min(walls) * 1e6 for name, walls in turns.items()},
            "gloo_over_memory": ratio(turns["memory"], turns["gloo"]),
        }
        for what, turns in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ranks", type=int, default=2)
    asked = parser.parse_args()
    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            fork.Process(target=one_rank, args=(rank, asked.ranks, folder, asked.rounds)) for rank in range(asked.ranks)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise SystemExit("a rank failed; see above")
        found = rows(json.loads(Path(folder, "found.json").read_text()))
    if asked.json:
        print(json.dumps({"ranks": asked.ranks, "rounds": asked.rounds, "rows": found}, indent=1))
        return
    for row in found:
        us, far = row["us"], row["gloo_over_memory"]
        print(
            f"{row['message']:>10}  memory {us['memory']:9.1f} us  gloo {us['gloo']:9.1f} us  "
            f"gloo / memory {far['ratio']:.1f} ({far['low']:.1f} to {far['high']:.1f}, n = {far['n']})"
        )


if __name__ == "__main__":
    main()
