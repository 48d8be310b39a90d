"""One rank of the all_reduce benchmark: gloo and mpi in one job, in turn, so that a slow minute is slow for both.

    mpirun -n 2 --bind-to none python benchmarks/_allreduce_ranks.py STORE RESULT [ROUNDS]

STORE is a file that does not exist yet; rank 0 writes RESULT: {bytes: {"gloo": [seconds per call, one per round], "mpi": [...]}}.
Nothing imports it: it is started once per rank.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path

import torch
import torch.distributed as dist

from paceline.worker.world import mpi

SIZES = (1 << 10, 16 << 10, 256 << 10, 1 << 20, 16 << 20)
WARM_UP = 3
BLOCK_BYTES = 8 << 20  # calls per timing: enough that the clock and the barrier before it do not count


def num_calls(size: int) -> int:
    return max(1, min(100, BLOCK_BYTES // size))


def seconds(group: dist.ProcessGroup, tensor: torch.Tensor, *, calls: int) -> float:
    """Seconds per call on this rank, back to back, from a common start."""
    dist.barrier(group=group)
    began = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - began) / calls


def measure(groups: dict[str, dist.ProcessGroup], *, rounds: int) -> dict[int, dict[str, list[float]]]:
    found: dict[int, dict[str, list[float]]] = {}
    for size in SIZES:
        tensor = torch.zeros(size // 4)  # zeros stay zeros, however often they are summed
        walls: dict[str, list[float]] = {name: [] for name in groups}
        for turn in range(-1, rounds):
            for name, group in groups.items():
                wall = seconds(group, tensor, calls=WARM_UP if turn < 0 else num_calls(size))
                if turn >= 0:
                    walls[name].append(wall)
        found[size] = walls
    return found


def slowest(found: dict[int, dict[str, list[float]]]) -> dict[int, dict[str, list[float]]]:
    """A call is over when it is over on every rank."""
    for walls in found.values():
        for name, mine in walls.items():
            worst = torch.tensor(mine, dtype=torch.float64)
            dist.all_reduce(worst, op=dist.ReduceOp.MAX)
            walls[name] = worst.tolist()
    return found


def main(store: str, result: str, rounds: str = "15") -> None:
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    torch.set_num_threads(1)
    mpi.arrive(rank, size)
    mpi.register()
    dist.init_process_group("gloo", store=dist.FileStore(store, size), rank=rank, world_size=size)
    world = dist.group.WORLD
    assert world is not None
    groups = {"gloo": world, "mpi": dist.new_group(backend=mpi.BACKEND)}
    for group in groups.values():  # both really add, before either is timed
        one = torch.ones(1)
        dist.all_reduce(one, group=group)
        assert one.item() == size
    found = slowest(measure(groups, rounds=int(rounds)))
    if rank == 0:
        Path(result).write_text(json.dumps({str(size): walls for size, walls in found.items()}, indent=1))
    dist.destroy_process_group()
    mpi.finalize()
    os._exit(0)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except BaseException:
        traceback.print_exc()
        os._exit(1)  # not through MPI_Finalize, which would wait for the others
