"""One rank of a test of the mpi backend: `mpirun -n N python mpi_ranks.py SCENARIO FOLDER`. It ends as `worker/rank.py` does."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from paceline.base.errors import RunFailed
from paceline.worker.world import mpi

SUM, OPS = dist.ReduceOp.SUM, dist.ReduceOp
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
EVERY = (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn)


class Ranks:
    """The two groups over the same ranks, and what each rank's numbers are, so that every rank knows every answer."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.everyone = rank, size, range(size)
        self.gloo = dist.new_group(backend="gloo")

    def numbers(self, dtype: torch.dtype = torch.float32, rank: int | None = None, num: int = 6) -> torch.Tensor:
        """Small whole numbers, exact in every dtype."""
        source = torch.Generator().manual_seed(self.rank if rank is None else rank)
        found = torch.randint(0, 2 if dtype == torch.bool else 5, (num,), generator=source)
        return found.to(torch.float32).to(dtype)

    def all_numbers(self, dtype: torch.dtype = torch.float32, num: int = 6) -> list[torch.Tensor]:
        return [self.numbers(dtype, rank, num) for rank in self.everyone]


def equal(got: torch.Tensor, wanted: torch.Tensor) -> None:
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (got, wanted)
    assert got.contiguous().flatten().view(torch.uint8).equal(wanted.contiguous().flatten().view(torch.uint8)), (
        got,
        wanted,
    )


# torch 2.13 has the first name, and warns of the second; before, there was only the second.
all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


# ---- collectives ----


def all_reduce_knows_every_dtype_and_operation(ranks: Ranks) -> None:
    by_op: dict[object, Callable[[torch.Tensor], torch.Tensor]] = {
        SUM: lambda rows: rows.sum(0), OPS.PRODUCT: lambda rows: rows.prod(0), OPS.MIN: lambda rows: rows.amin(0),
        OPS.MAX: lambda rows: rows.amax(0), OPS.AVG: lambda rows: rows.sum(0) / len(rows),
    }  # fmt: skip
    bits = {OPS.BAND: torch.bitwise_and, OPS.BOR: torch.bitwise_or, OPS.BXOR: torch.bitwise_xor}
    for dtype in (*FLOATS, *INTEGERS):
        rows = torch.stack(ranks.all_numbers(torch.float64))
        for op, reference in by_op.items():
            if op is OPS.AVG and not dtype.is_floating_point:
                continue
            mine = ranks.numbers(dtype)
            dist.all_reduce(mine, op=op)
            if op is OPS.AVG:  # rounded once, from float32 where the dtype is narrower
                wide = torch.float64 if dtype == torch.float64 else torch.float32
                equal(mine, (rows.sum(0).to(wide) / ranks.size).to(dtype))
            else:
                equal(mine, reference(rows).to(dtype))
    for dtype in INTEGERS:
        for op, both in bits.items():
            mine, wanted = ranks.numbers(dtype), ranks.numbers(torch.int64, 0)
            dist.all_reduce(mine, op=op)
            for other in ranks.all_numbers(torch.int64)[1:]:
                wanted = both(wanted, other)
            equal(mine, wanted.to(dtype))
    rows = torch.stack(ranks.all_numbers(torch.bool))
    odd = rows.sum(0) % 2 == 1
    either, both = rows.any(0), rows.all(0)
    for op, wanted in {
        SUM: either, OPS.MAX: either, OPS.BOR: either, OPS.MIN: both, OPS.PRODUCT: both, OPS.BAND: both, OPS.BXOR: odd,
    }.items():  # fmt: skip
        mine = ranks.numbers(torch.bool)
        dist.all_reduce(mine, op=op)
        equal(mine, wanted)


def all_reduce_takes_any_shape(ranks: Ranks) -> None:
    total = torch.stack(ranks.all_numbers()).sum(0)
    columns = ranks.numbers().view(2, 3).t()
    dist.all_reduce(columns)
    equal(columns, total.view(2, 3).t())
    every_second = torch.zeros(12)
    every_second[::2] = ranks.numbers()
    dist.all_reduce(every_second[::2])
    equal(every_second[::2], total)
    equal(every_second[1::2], torch.zeros(6))
    dist.all_reduce(torch.zeros(0))
    scalar = torch.tensor(float(ranks.rank + 1), requires_grad=True)
    dist.all_reduce(scalar)
    assert scalar.item() == sum(range(1, ranks.size + 1)) and scalar.requires_grad
    pairs = torch.complex(ranks.numbers(), ranks.numbers(rank=ranks.rank + 7))
    dist.all_reduce(pairs)
    equal(pairs.real.contiguous(), total)


def all_reduce_equals_gloo(ranks: Ranks) -> None:
    """Random floats: the same bits at two ranks, another order of summation above."""
    source = torch.Generator().manual_seed(ranks.rank)
    for num in (1, 1000, 300_000):
        mine = torch.randn(num, generator=source)
        ours, theirs = mine.clone(), mine.clone()
        dist.all_reduce(ours)
        dist.all_reduce(theirs, group=ranks.gloo)
        if ranks.size == 2:
            equal(ours, theirs)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def coalesced_ones(ranks: Ranks) -> None:
    pair = [ranks.numbers(), ranks.numbers(num=3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.all_reduce_coalesced(pair)
    equal(pair[0], torch.stack(ranks.all_numbers()).sum(0))
    equal(pair[1], torch.stack(ranks.all_numbers(num=3)).sum(0))
    group = dist.group.WORLD
    assert group is not None
    outs = [torch.zeros(ranks.size * 6), torch.zeros(ranks.size * 3)]
    group.allgather_into_tensor_coalesced(outs, [ranks.numbers(), ranks.numbers(num=3)]).wait()
    equal(outs[0], torch.cat(ranks.all_numbers()))
    equal(outs[1], torch.cat(ranks.all_numbers(num=3)))
    mine = [torch.zeros(2)]
    group.reduce_scatter_tensor_coalesced(mine, [ranks.numbers(num=2 * ranks.size)]).wait()
    total = torch.stack(ranks.all_numbers(num=2 * ranks.size)).sum(0)
    equal(mine[0], total.view(ranks.size, 2)[ranks.rank])


def broadcast(ranks: Ranks) -> None:
    for dtype in EVERY:
        for root in ranks.everyone:
            mine = ranks.numbers(dtype)
            dist.broadcast(mine, src=root)
            equal(mine, ranks.numbers(dtype, root))
    strided = ranks.numbers().view(2, 3).t()
    dist.broadcast(strided, src=1)
    equal(strided, ranks.numbers(rank=1).view(2, 3).t())


def reduce(ranks: Ranks) -> None:
    for root in ranks.everyone:
        for dtype, op in (
            (torch.float32, SUM),
            (torch.bfloat16, SUM),
            (torch.float32, OPS.AVG),
            (torch.int64, OPS.MAX),
        ):
            mine = ranks.numbers(dtype)
            dist.reduce(mine, dst=root, op=op)
            rows = torch.stack(ranks.all_numbers(torch.float64))
            answer = {SUM: rows.sum(0), OPS.AVG: rows.mean(0), OPS.MAX: rows.amax(0)}[op].to(dtype)
            equal(mine, answer if ranks.rank == root else ranks.numbers(dtype))  # the others keep theirs


def all_gather(ranks: Ranks) -> None:
    for dtype in EVERY:
        outs = [torch.zeros(6, dtype=dtype) for _ in ranks.everyone]
        dist.all_gather(outs, ranks.numbers(dtype))
        for out, wanted in zip(outs, ranks.all_numbers(dtype), strict=True):
            equal(out, wanted)
        whole = torch.zeros(ranks.size * 6, dtype=dtype)
        all_gather_single(whole, ranks.numbers(dtype))
        equal(whole, torch.cat(ranks.all_numbers(dtype)))
    inside = torch.zeros(ranks.size, 6)
    inside[ranks.rank] = ranks.numbers()
    all_gather_single(inside.view(-1), inside[ranks.rank])  # its input is a part of its output, as in FSDP
    equal(inside, torch.stack(ranks.all_numbers()))


def gather_and_scatter(ranks: Ranks) -> None:
    for root in ranks.everyone:
        outs = [torch.zeros(6) for _ in ranks.everyone] if ranks.rank == root else None
        dist.gather(ranks.numbers(), outs, dst=root)
        for out, wanted in zip(outs or [], ranks.all_numbers(), strict=outs is not None):
            equal(out, wanted)
        mine = torch.zeros(6)
        dist.scatter(mine, ranks.all_numbers() if ranks.rank == root else None, src=root)
        equal(mine, ranks.numbers())


def reduce_scatter(ranks: Ranks) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for op in (SUM, OPS.MAX):
            rows = torch.stack(ranks.all_numbers(dtype, num=4 * ranks.size))
            wanted = (rows.sum(0) if op == SUM else rows.amax(0)).to(dtype).view(ranks.size, 4)[ranks.rank]
            out = torch.zeros(4, dtype=dtype)
            dist.reduce_scatter(out, list(ranks.numbers(dtype, num=4 * ranks.size).chunk(ranks.size)), op=op)
            equal(out, wanted)
            out.zero_()
            reduce_scatter_single(out, ranks.numbers(dtype, num=4 * ranks.size), op=op)
            equal(out, wanted)
    mean = torch.zeros(4)
    reduce_scatter_single(mean, ranks.numbers(num=4 * ranks.size), op=OPS.AVG)
    equal(
        mean, (torch.stack(ranks.all_numbers(num=4 * ranks.size)).sum(0) / ranks.size).view(ranks.size, 4)[ranks.rank]
    )


def all_to_all(ranks: Ranks) -> None:
    even = torch.zeros(ranks.size, 2)
    dist.all_to_all_single(even, torch.full((ranks.size, 2), float(ranks.rank)))
    equal(even, torch.arange(float(ranks.size))[:, None].expand(-1, 2))
    # rank r gives k + 1 rows to rank k, each with r in it
    to, fro = [k + 1 for k in ranks.everyone], [ranks.rank + 1] * ranks.size
    uneven = torch.zeros(sum(fro), 2)
    dist.all_to_all_single(uneven, torch.full((sum(to), 2), float(ranks.rank)), fro, to)
    equal(uneven, torch.arange(float(ranks.size)).repeat_interleave(ranks.rank + 1)[:, None].expand(-1, 2))
    outs = [torch.zeros(ranks.rank + 1) for _ in ranks.everyone]
    dist.all_to_all(outs, [torch.full((k + 1,), float(ranks.rank)) for k in ranks.everyone])
    for source, out in enumerate(outs):
        equal(out, torch.full((ranks.rank + 1,), float(source)))


def one_to_one(ranks: Ranks) -> None:
    after, before = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    big, got = torch.full((1_000_000,), float(ranks.rank)), torch.zeros(1_000_000)
    works = [dist.isend(big, after), dist.irecv(got, before)]  # 4 MB both ways: blocking ones would wait for each other
    for work in works:
        assert work is not None
        work.wait()
        assert work.is_completed()
    equal(got, torch.full((1_000_000,), float(before)))
    if ranks.rank == 0:
        for source in range(1, ranks.size):
            place = torch.zeros(2, 3).t()  # into a strided tensor
            dist.recv(place, src=source, tag=5)
            equal(place, ranks.numbers(rank=source).view(2, 3).t())
        sources = set()
        for _ in range(1, ranks.size):
            word = torch.zeros(1, dtype=torch.int64)
            sources.add(dist.recv(word))
            assert word.item() in sources
        assert sources == set(range(1, ranks.size))
    else:
        dist.send(ranks.numbers().view(2, 3).t(), dst=0, tag=5)
        dist.isend(torch.tensor([ranks.rank]), dst=0)  # nobody keeps it, nobody waits: its memory must live on
    dist.barrier()
    all_to_all = [dist.P2POp(dist.isend, big, after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(all_to_all):
        work.wait()


# ---- order, groups, refusals ----


def async_is_async(ranks: Ranks) -> None:
    """Rank 0 starts and only then tells the others that they may: if it waited inside the call, this would hang."""
    mine, token = ranks.numbers(), torch.zeros(1)
    if ranks.rank == 0:
        work = dist.all_reduce(mine, async_op=True)
        assert work is not None and not work.is_completed()
        for other in range(1, ranks.size):
            dist.send(token, other, group=ranks.gloo)
    else:
        dist.recv(token, 0, group=ranks.gloo)
        work = dist.all_reduce(mine, async_op=True)
    assert work is not None
    work.wait()
    assert work.is_completed()
    equal(mine, torch.stack(ranks.all_numbers()).sum(0))


def order_is_kept(ranks: Ranks) -> None:
    """Operations on one tensor, each needing the one before, strided so that it is copied; the last one waits in line."""
    place = torch.zeros(4, dtype=torch.float64)
    view = place[::2]
    view.fill_(float(ranks.rank))
    value = [float(rank) for rank in ranks.everyone]
    works = []
    for turn in range(20):
        if turn % 2:
            works.append(dist.broadcast(view, src=turn % ranks.size, async_op=True))
            value = [value[turn % ranks.size]] * ranks.size
        else:
            works.append(dist.all_reduce(view, async_op=True))
            value = [sum(value)] * ranks.size
    dist.all_reduce(view, op=OPS.AVG)
    assert all(work.is_completed() for work in works)
    equal(view.contiguous(), torch.full((2,), value[ranks.rank], dtype=torch.float64))


def waiting_calls_need_no_thread(ranks: Ranks) -> None:
    fresh = dist.new_group()
    dist.all_reduce(ranks.numbers(), group=fresh)
    name = f"mpi-{fresh.group_name}"
    assert name not in {thread.name for thread in threading.enumerate()}
    work = dist.all_reduce(ranks.numbers(), group=fresh, async_op=True)
    assert name in {thread.name for thread in threading.enumerate()}
    assert work is not None
    work.wait()
    dist.destroy_process_group(fresh)
    assert name not in {thread.name for thread in threading.enumerate()}


def groups_of_some(ranks: Ranks) -> None:
    some = [rank for rank in ranks.everyone if rank != 1]
    group = dist.new_group(some)
    last = dist.new_group([ranks.size - 1])
    if ranks.rank in some:
        assert (dist.get_rank(group), dist.get_world_size(group)) == (some.index(ranks.rank), len(some))
        mine = ranks.numbers()
        dist.all_reduce(mine, group=group)
        equal(mine, torch.stack([ranks.numbers(rank=rank) for rank in some]).sum(0))
        dist.broadcast(mine, src=some[-1], group=group)
        dist.destroy_process_group(group)
    if ranks.rank == ranks.size - 1:
        alone = ranks.numbers()
        dist.all_reduce(alone, group=last)
        equal(alone, ranks.numbers())
    dist.barrier()


def refused(what: Callable[[], object], words: str) -> None:
    with pytest.raises((ValueError, RunFailed)) as found:
        what()
    assert words in str(found.value)


def refusals_come_before_the_message(ranks: Ranks) -> None:
    x = torch.zeros(2)
    group = dist.group.WORLD
    assert group is not None
    refused(lambda: dist.all_reduce(torch.zeros(2, device="meta")), "on meta")
    refused(lambda: dist.broadcast(x.to_sparse(), src=0), "dense")
    refused(lambda: dist.all_reduce(torch.zeros(2, dtype=torch.int64), op=OPS.AVG), "cannot reduce torch.int64 by AVG")
    refused(lambda: dist.all_reduce(x, op=OPS.BXOR), "cannot reduce torch.float32 by BXOR; it can by SUM")
    refused(lambda: dist.all_reduce(x.to(torch.float8_e4m3fn)), "cannot reduce torch.float8_e4m3fn")
    refused(lambda: dist.all_reduce(torch.zeros(1).expand(2**31)), "send them in parts")
    refused(lambda: dist.all_gather([x] * (ranks.size - 1), x), "one per rank")
    refused(lambda: group.allgather([[torch.zeros(3)] * ranks.size], [x]), "one per rank")
    refused(lambda: reduce_scatter_single(x, x), "reduce_scatter_single needs")
    refused(lambda: dist.all_to_all_single(torch.zeros(7), torch.zeros(7), [7], [7]), "cannot split")
    refused(lambda: group.allreduce([x, x.double()]), "one dtype")
    refused(lambda: mpi.arrive(ranks.rank, ranks.size + 1), f"has {ranks.size} - the launcher started another number")
    refused(lambda: mpi.arrive(ranks.rank + 1, ranks.size), f"calls this process rank {ranks.rank}")
    mpi.arrive(ranks.rank, ranks.size)
    dist.barrier()


def a_callback_cannot_start_a_collective(ranks: Ranks) -> None:
    """It would wait for the thread it is on. The refusal reaches whoever waits for the callback."""
    mine, other, token = torch.zeros(1), torch.zeros(1), torch.zeros(1)
    if ranks.rank > 0:
        dist.recv(token, 0, group=ranks.gloo)  # so that rank 0's callback is attached in time
        dist.all_reduce(mine)
    else:
        work = dist.all_reduce(mine, async_op=True)
        assert work is not None
        then = work.get_future().then(lambda _: dist.all_reduce(other))
        for peer in range(1, ranks.size):
            dist.send(token, peer, group=ranks.gloo)
        with pytest.raises(RuntimeError, match="inside another one's callback"):
            then.wait()


# ---- training ----


def trained(
    ranks: Ranks, group: dist.ProcessGroup | None, *, hook: bool = False, compiled: bool = False, **settings: object
) -> torch.Tensor:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10)
    )
    if "find_unused_parameters" in settings:
        model[-1].register_parameter("unused", torch.nn.Parameter(torch.zeros(3)))
    parallel = DistributedDataParallel(model, process_group=group, **settings)
    if hook:
        parallel.register_comm_hook(group, default_hooks.fp16_compress_hook)
    forward = torch.compile(parallel, backend="eager") if compiled else parallel
    optimizer = torch.optim.Adam(parallel.parameters(), lr=1e-2)
    source = torch.Generator().manual_seed(100 + ranks.rank)
    for _ in range(10):
        x, y = torch.randn(16, 20, generator=source), torch.randint(0, 10, (16,), generator=source)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(forward(x), y).backward()
        optimizer.step()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def training_equals_gloo(ranks: Ranks) -> None:
    for settings in (
        {}, {"bucket_cap_mb": 0.001}, {"find_unused_parameters": True}, {"static_graph": True},
        {"gradient_as_bucket_view": True},
    ):  # fmt: skip
        ours, theirs = trained(ranks, None, **settings), trained(ranks, ranks.gloo, **settings)
        worst = (ours - theirs).abs().max().item()
        assert worst == 0 if ranks.size == 2 else worst < 1e-6, (settings, worst)
        first = ours.clone()
        dist.broadcast(first, src=0)
        equal(ours, first)


def compressed_training(ranks: Ranks) -> None:
    """fp16 on the way, and a callback on the group's own thread."""
    ours, theirs = trained(ranks, None, hook=True), trained(ranks, ranks.gloo, hook=True)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-3)


def compiled_training(ranks: Ranks) -> None:
    """C++ calls the group from inside a compiled region, where dynamo looks at every Python frame."""
    torch._logging.set_logs(all=logging.ERROR)  # dynamo warns about DDP's own profiler marks
    equal(trained(ranks, None, compiled=True), trained(ranks, None))


CHECKS = [
    all_reduce_knows_every_dtype_and_operation, all_reduce_takes_any_shape, all_reduce_equals_gloo, coalesced_ones, broadcast,
    reduce, all_gather, gather_and_scatter, reduce_scatter, all_to_all, one_to_one, async_is_async, order_is_kept,
    waiting_calls_need_no_thread, groups_of_some, refusals_come_before_the_message, a_callback_cannot_start_a_collective,
    training_equals_gloo, compressed_training, compiled_training,
]  # fmt: skip


# ---- scenarios ----


def join(store: dist.Store) -> tuple[int, int]:
    from mpi4py import MPI

    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    mpi.arrive(rank, size)
    mpi.register()
    mpi.register()
    dist.init_process_group(mpi.BACKEND, store=store, rank=rank, world_size=size)
    return rank, size


def leave() -> NoReturn:
    dist.destroy_process_group()
    mpi.finalize()
    os._exit(0)


def check(folder: Path) -> None:
    ranks = Ranks(*join(dist.FileStore(str(folder / "store"))))
    passed: dict[str, object] = {"backend": dist.get_backend(), "library": mpi.library()}
    for one in CHECKS:
        one(ranks)
        passed[one.__name__] = "passed"
        (folder / f"rank_{ranks.rank}.json").write_text(json.dumps(passed))
    leave()


def strike(folder: Path, how: Callable[[], object]) -> None:
    """The last rank goes in the middle of a collective; the others wait for it in MPI."""
    rank, size = join(dist.HashStore())
    dist.barrier()
    if rank == size - 1:
        (folder / "struck").touch()
        how()
    dist.all_reduce(torch.zeros(10))
    leave()


def fail() -> NoReturn:
    raise ValueError("this rank fails on purpose")


def forget(_: Path) -> None:
    """Neither destroyed nor finalised, with a thread alive: as a script that knows nothing of us would end."""
    join(dist.HashStore())
    work = dist.all_reduce(torch.zeros(10), async_op=True)
    assert work is not None
    work.wait()


def truncate(folder: Path) -> None:
    """A message that does not fit is found by MPI, in the group's thread, where nobody can catch it."""
    rank, _ = join(dist.HashStore())
    (folder / "struck").touch()
    work = dist.broadcast(torch.zeros(1000 if rank == 0 else 10), src=0, async_op=True)
    assert work is not None
    work.wait()
    dist.barrier()
    leave()


def alone(folder: Path) -> None:
    """What srun with the wrong plug-in makes of two ranks: each the only one of its world."""
    try:
        mpi.arrive(0, 2)
    except RunFailed as error:
        (folder / "why.json").write_text(json.dumps({"kind": error.kind, "why": error.why}))
    mpi.finalize()


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "check": check,
    "raise": lambda folder: strike(folder, fail),
    "exit": lambda folder: strike(folder, lambda: sys.exit(3)),
    "kill": lambda folder: strike(folder, lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "forget": forget,
    "truncate": truncate,
    "alone": alone,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    try:
        SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
