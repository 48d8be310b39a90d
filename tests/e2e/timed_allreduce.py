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

rank, head, port, numbers, calls, result = (*sys.argv[1:2], *sys.argv[2:])
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
