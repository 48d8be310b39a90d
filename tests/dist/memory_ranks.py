"""The ranks of `test_memory.py`: `python memory_ranks.py FOLDER`. Sums through shared memory at 2, 3 and 4 ranks; JSON goes to FOLDER.

torch is imported once and the ranks are forked from there. Four ranks are more than this may have cores: then nobody spins.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn

from paceline.base.errors import RunFailed
from paceline.worker.measure.tally import Tally
from paceline.worker.sharding.replicate import Replicated
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.world.collectives import Exchange, all_reduce_, broadcast, carried
from paceline.worker.world.join import World
from paceline.worker.world.shared_all_reduce import PART_BYTES, SLOT_BYTES, SharedAllReduce

SLOT, PART = SLOT_BYTES // 4, PART_BYTES // 4  # numbers of 4 bytes
SIZES = (0, 1, 7, 1001, PART, PART + 1, SLOT - 1, SLOT, SLOT + 1, 2 * SLOT + 12_345)
SUMS_IN_A_ROW = 3_000


def world(shared_all_reduce: SharedAllReduce | None, rank: int, size: int) -> World:
    return World(rank, size, rank, "here", torch.device("cpu"), "gloo", shared_all_reduce=shared_all_reduce)


def _sums(shared_all_reduce: SharedAllReduce, rank: int, size: int) -> dict[str, Any]:
    """Every size and format, against the sum in the order of the ranks and against gloo."""
    here, found = world(shared_all_reduce, rank, size), []
    digest = hashlib.sha256()
    for num in SIZES:
        for dtype in (torch.float32, torch.float64):
            draw = torch.Generator().manual_seed(num)
            rows = [torch.randn(num, dtype=dtype, generator=draw) for _ in range(size)]
            want, gloo = rows[0].clone(), rows[rank].clone()
            for row in rows[1:]:
                want += row
            dist.all_reduce(gloo)
            got = all_reduce_(rows[rank], here)
            digest.update(got.numpy().tobytes())
            far = float((got - gloo).abs().max() / gloo.abs().max()) if num else 0.0
            found.append({"num": num, "dtype": str(dtype), "exact": got.equal(want), "from_gloo": far})
    return {
        "sums": found, "digest": digest.hexdigest(), "carried": carried(here),
        "sent": [here.sent.num, here.sent.bytes, here.sent.ring_bytes, here.sent.by_backend], "num": shared_all_reduce.num,
    }  # fmt: skip


def _in_a_row(shared_all_reduce: SharedAllReduce, rank: int, size: int) -> float:
    """Many small ones: slots are used again and again, by ranks that run ahead of each other."""
    total = torch.zeros(5)
    for number in range(SUMS_IN_A_ROW):
        row = torch.full((5,), float(number + rank))
        shared_all_reduce.all_reduce_(row)
        total += row - size * number
    return float(total.max())


def _met(here: World, num: int, rounds: int) -> list[int]:
    """Rounds that came out wrong: messages that are read where the others wrote them, by ranks that run ahead or fall behind (the
    sleeps); in every third round a rank makes an ordinary sum, in the same slots."""
    exchange, wrong = Exchange(num, torch.float32, here), list[int]()
    first, rest = exchange.own.cut([1, num - 1])
    for number in range(rounds):
        mine, want = float(number * here.size + here.rank), sum(float(number * here.size + r) for r in range(here.size))
        if (number * 7 + here.rank) % 101 == 0:
            time.sleep(0.0003)
        if (number + here.rank) % 3 == 0:
            total = all_reduce_(torch.full((num,), mine), here)
        else:
            first.fill_(mine)
            rest.fill_(mine)
            exchange.publish()
            if number % 40 == 20 + here.rank:
                time.sleep(0.0003)  # it fetches, and the others have its message already
            exchange.wait()
            if number % 50 == here.rank:
                time.sleep(0.0003)  # the others are about to write their next one
            total = torch.stack(exchange.messages).sum(0)
            exchange.release()
        if not total.eq(want).all():
            wrong.append(number)
    return wrong


def _names(here: World) -> dict[str, Any]:
    """Scores over all ranks with the names of the last time: the same ones, then others."""

    def tally(*names: str) -> Tally:
        made = Tally()
        made.add({name: (torch.tensor(float(here.rank + 1)), torch.tensor(1.0)) for name in names}, 1)
        return made

    first = tally("a").over(here)
    return {
        "same": tally("a").over(here, first.names).means(),
        "changed": tally("a", "b").over(here, first.names).means(),
    }


def _words(here: World) -> dict[str, Any]:
    """What one rank has, on every rank, in several types; a long one goes through the backend."""
    assert here.shared_all_reduce is not None
    short = [
        torch.tensor(7 - (1 << 60)),
        torch.tensor([True, False]),
        torch.tensor([0.1, float("nan")], dtype=torch.bfloat16),
    ]
    wrong, before = list[str](), here.shared_all_reduce.num
    for src in range(here.size):
        for want in short:
            got = broadcast(want.clone() if here.rank == src else torch.zeros_like(want), here, src=src)
            if (
                got.view(torch.uint8 if got.dim() else got.dtype)
                .ne(want.view(torch.uint8 if got.dim() else got.dtype))
                .any()
            ):
                wrong.append(f"{want} of rank {src}")
    through_memory, long = here.shared_all_reduce.num - before, torch.arange(1 << 14)
    same = broadcast(long.clone() if here.rank == 0 else torch.zeros_like(long), here).equal(long)
    return {
        "wrong": wrong,
        "through_memory": through_memory,
        "long": same,
        "after_long": here.shared_all_reduce.num - before,
    }


class Odd(nn.Module):
    """Of its layers one is used by nobody, one by rank 0 only, and a table has sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused, self.first = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)
        self.table = nn.Embedding(9, 3, sparse=True)


def _exchanges(shared_all_reduce: SharedAllReduce, rank: int, size: int) -> dict[str, Any]:
    """`Replicated` through memory and through gloo: the same gradients, twice, because its buffer stays; a short batch in between."""
    found: dict[str, Any] = {}
    for name, through in (("memory", shared_all_reduce), ("gloo", None)):
        torch.manual_seed(1)
        model = Odd().double()
        way = Replicated(
            TaskModule(model, Task("odd", Odd, list, list, usual_forward, usual_loss, usual_score)),
            world(through, rank, size),
        )
        rows: list[Any] = []
        for step in range(3):
            model.zero_grad(set_to_none=True)
            idle = step == 1 and rank > 0  # a rank without a sample
            ids = torch.tensor([0, rank + 1, rank + 1, 8])[: 0 if idle else 4]
            if not idle:
                x = model.table(ids) * (rank + step + 1)
                (model.used(x).sum() + (model.first(x).sum() if rank == 0 else 0.0)).backward()
            way.reduce(len(ids))
            rows.append(
                {n: None if p.grad is None else p.grad.to_dense().tolist() for n, p in model.named_parameters()}
            )
        found[name] = {"rows": rows, "sparse": model.table.weight.grad.is_sparse}  # pyright: ignore[reportOptionalMemberAccess]
    return found


def _shared_names() -> list[str]:
    """What the kernel calls the memory this process shares: a name on a disk would stay there when ranks are killed."""
    lines = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines())
    return sorted({words[5] for words in lines if len(words) == 6 and words[1] == "rw-s"})


def _said(job: Callable[[], Any]) -> str:
    try:
        job()
    except RunFailed as error:
        return f"{error.kind}: {error}"
    return "nothing"


def one_rank(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / f"store{size}"), size)
    dist.init_process_group("gloo", store=dist.PrefixStore("world", store), rank=rank, world_size=size)

    def shared_all_reduce(name: str, timeout_s: float = 60.0) -> SharedAllReduce:
        return SharedAllReduce(dist.PrefixStore(name, store), rank=rank, size=size, threads=1, timeout_s=timeout_s)

    found: dict[str, Any] = {}
    try:
        first = shared_all_reduce("sums")
        found |= {"sums": _sums(first, rank, size), "in_a_row": _in_a_row(first, rank, size)}
        found["exchanges"] = _exchanges(first, rank, size)
        found["words"] = _words(world(first, rank, size))
        wide = world(first, rank, size)
        sizes = ((1001, 2_000), (PART, 200), (PART + 1, 200), (SLOT, 20), (SLOT + 1, 20))
        found["met"] = [_met(wide, num, rounds) for num, rounds in sizes]
        found["met"].append(_met(world(None, rank, size), 1001, 20))
        found["met_sent"] = [wide.sent.num, wide.sent.by_backend]
        found["names"] = _names(world(None, rank, size))
        other = shared_all_reduce("sizes")
        found["sizes"] = _said(lambda: all_reduce_(torch.ones(9 if rank else 8), world(other, rank, size)))
        late = shared_all_reduce("late", timeout_s=60)
        late._timeout_s = 0.3
        found["late"] = _said(lambda: rank and all_reduce_(torch.ones(3), world(late, rank, size)))
        dist.barrier()
        dying = shared_all_reduce("dying")
        if rank == 0:
            (folder / f"{size}-0.json").write_text(json.dumps(found))
            os.kill(os.getpid(), signal.SIGKILL)
        found["dying"] = _said(lambda: all_reduce_(torch.ones(SLOT + 1), world(dying, rank, size)))
        found["shared"] = _shared_names()
    except Exception:
        found["broke"] = traceback.format_exc()
    (folder / f"{size}-{rank}.json").write_text(json.dumps(found))
    os._exit(0)  # the first rank is gone: there is nobody to part from


def main(folder: Path) -> None:
    fork = multiprocessing.get_context("fork")
    for size in (2, 3, 4):
        ranks = [fork.Process(target=one_rank, args=(rank, size, folder)) for rank in range(size)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
