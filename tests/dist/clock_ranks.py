"""Two ranks of one machine that pretend to be two: rank 1's clock is five seconds ahead and runs a thousandth faster.

Run as `clock_ranks.py RANK FOLDER`; rank 1 writes down how far off it is, and both what they make of ten late arrivals.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from paceline.base.errors import RunFailed
from paceline.records.split import COMMUNICATION
from paceline.worker.measure import arrivals as module
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.world.clocks import Clocks
from paceline.worker.world.collectives import all_reduce_
from paceline.worker.world.join import World

STEPS, LATE_S = 10, 0.03


def main(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank, world_size=2)
    world = World(rank=rank, size=2, local_rank=0, host=f"node{rank}", device=torch.device("cpu"), backend="gloo")

    def now() -> float:
        return time.perf_counter() if rank == 0 else time.perf_counter() * 1.001 + 5.0

    def wall() -> float:
        return time.time() + 1.5 * rank

    clocks = Clocks(world, now, wall, machine=f"machine {rank}".ljust(36).encode())
    true, mine = [], []
    for _ in range(5):
        time.sleep(0.1)
        true.append(time.perf_counter())
        mine.append(now())
    clocks.ask()
    off = float(np.abs(clocks.common(np.array(mine)) - np.array(true)).max())

    module.Clocks = lambda world, *_: Clocks(world, now, wall, machine=f"machine {rank}".ljust(36).encode())
    watch = Stopwatch("data")
    watch._clock = now
    watch.switch("data")
    arrivals = module.Arrivals(world, watch)
    slept = 0.0
    for _ in range(STEPS):
        began = time.perf_counter()
        time.sleep(LATE_S * rank)
        slept += time.perf_counter() - began
        watch.switch(COMMUNICATION)
        all_reduce_(torch.ones(10), world)
        watch.switch("data")
    arrivals.exchange()
    found = arrivals.split(dict(watch.parts))
    answer = {
        "off_s": off,
        "trip_s": clocks.round_trip_s,
        "slept_s": slept,
        "ahead_s": clocks.ahead_s,
        **arrivals.late(),
    }
    answer |= {name: found[name] for name in ("waiting", "transfer")}
    silent = module.Arrivals(world, watch)
    watch.switch(COMMUNICATION)  # they meet, and nothing is said
    watch.switch("data")
    silent.exchange()
    try:
        silent.split(dict(watch.parts))
    except RunFailed as error:
        answer["silent"] = error.why
    (folder / f"rank{rank}.json").write_text(json.dumps(answer))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
