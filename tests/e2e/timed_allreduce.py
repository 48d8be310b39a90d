"""An all-reduce of a given size between two machines, timed by itself: `timed_allreduce.py RANK HEAD PORT NUMBERS CALLS RESULT`.

Independent of Paceline: plain torch, gloo, a barrier before each call so that nobody waits for anybody inside it.
"""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def main(*words: str) -> None:
    rank, head, port, numbers, calls, result = words
    store = dist.TCPStore(head, int(port), 2, is_master=rank == "0", timeout=timedelta(seconds=30))
    dist.init_process_group("gloo", store=store, rank=int(rank), world_size=2)
    message, took = torch.zeros(int(numbers)), []
    for _ in range(int(calls)):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(message)
        took.append(time.perf_counter() - began)
    if rank == "0":
        Path(result).write_text(json.dumps(took))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
