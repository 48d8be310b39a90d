"""The collectives in which every rank takes the same part, in MPI: the lower half of `mpi_group.py`, whose names and rules hold here.

Buffers and the thread that talks to MPI are made here; what a group is called, and how ranks talk one to one, is not known here.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.worker.world.mpi_buffers import Block, reduction, same_size, sendable
from paceline.worker.world.mpi_lane import Lane, Task, Work

if TYPE_CHECKING:
    from mpi4py import MPI

_Group = TypeVar("_Group", bound=dist.ProcessGroup)


def asked(opts: Any, name: str, default: Any) -> Any:
    return default if opts is None else getattr(opts, name, default)


def untraced(group: type[_Group]) -> type[_Group]:
    """Under torch.compile, C++ calls these methods from inside a compiled region, and dynamo would try to compile them."""
    for name, method in list(vars(group).items()):
        if inspect.isfunction(method) and name != "__init__":
            setattr(group, name, torch.compiler.disable(method))
    return group


@untraced
class Collectives(dist.ProcessGroup):
    def __init__(self, comm: MPI.Intracomm, *, name: str) -> None:
        super().__init__(comm.Get_rank(), comm.Get_size())  # pyright: ignore[reportCallIssue]  (the stub lacks this one)
        self._comm = comm
        self._me, self._num = comm.Get_rank(), comm.Get_size()
        self._lane = Lane(f"mpi-{name}")

    def _do(self, task: Task, opts: Any) -> Work:
        return self._lane.do(task, waits=not asked(opts, "asyncOp", True))

    # ---- every rank gets the same ----

    def allreduce(self, tensors: Sequence[Tensor] | Tensor, opts: Any = None) -> Work:
        """Also the coalesced one. DDP's join gives a bare tensor and no options."""
        from mpi4py import MPI

        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        parts = sendable(tensors)
        how = reduction(asked(opts, "reduceOp", None), parts)

        def task() -> list[Tensor]:
            block = how.block(parts).load()
            self._comm.Allreduce(MPI.IN_PLACE, block.numbers(), op=how.op)
            how.finish(block, self._num)
            return tensors

        return self._do(task, opts)

    def broadcast(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        parts, root = sendable(tensors), asked(opts, "rootRank", 0)

        def task() -> list[Tensor]:
            block = Block(parts)
            self._comm.Bcast((block.load() if self._me == root else block).message(), root=root)
            if self._me != root:
                block.store()
            return list(tensors)

        return self._do(task, opts)

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        """Also the coalesced one: one list of outputs per input."""
        pairs = [(sendable(outs), sendable([mine])) for outs, mine in zip(outputs, inputs, strict=True)]
        for outs, (mine,) in pairs:
            same_size(outs, num=self._num, elements=mine.numel(), what="all_gather")
        return self._gather_all(pairs, [out for outs in outputs for out in outs], opts)

    def all_gather_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        pairs = [(sendable([out]), sendable([mine])) for out, mine in zip(outputs, inputs, strict=True)]
        for outs, (mine,) in pairs:
            same_size(outs, num=1, elements=self._num * mine.numel(), what="all_gather_single")
        return self._gather_all(pairs, list(outputs), opts)

    def _gather_all(self, pairs: list[tuple[list[Tensor], list[Tensor]]], result: list[Tensor], opts: Any) -> Work:
        def task() -> list[Tensor]:
            for outs, mine in pairs:
                everything = Block(outs)
                self._comm.Allgather(Block(mine).load().apart_from(everything).message(), everything.message())
                everything.store()
            return result

        return self._do(task, opts)

    def barrier(self, opts: Any = None) -> Work:
        def task() -> list[Tensor]:
            self._comm.Barrier()
            return [torch.zeros(1)]  # C++ wants a tensor in every future

        return self._do(task, opts)

    # ---- every rank gets its own ----

    def reduce_scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any = None) -> Work:
        pairs = [(sendable([out]), sendable(parts)) for out, parts in zip(outputs, inputs, strict=True)]
        for (mine,), parts in pairs:
            same_size(parts, num=self._num, elements=mine.numel(), what="reduce_scatter")
        return self._reduce_parts(pairs, list(outputs), opts)

    def reduce_scatter_single(self, output: Tensor, input: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        pairs = [(sendable([out]), sendable([parts])) for out, parts in zip(outputs, inputs, strict=True)]
        for (mine,), parts in pairs:
            same_size(parts, num=1, elements=self._num * mine.numel(), what="reduce_scatter_single")
        return self._reduce_parts(pairs, list(outputs), opts)

    def _reduce_parts(self, pairs: list[tuple[list[Tensor], list[Tensor]]], result: list[Tensor], opts: Any) -> Work:
        hows = [reduction(asked(opts, "reduceOp", None), sendable([*mine, *parts])) for mine, parts in pairs]

        def task() -> list[Tensor]:
            for (mine, parts), how in zip(pairs, hows, strict=True):
                block, each = how.block(mine), mine[0].numel()
                everything = how.block(parts).load().apart_from(block)
                self._comm.Reduce_scatter_block(everything.numbers(each), block.numbers(each), op=how.op)
                how.finish(block, self._num)
            return result

        return self._do(task, opts)

    def all_to_all_single(
        self, output: Tensor, input: Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None
    ) -> Work:
        (out,), (mine,) = sendable([output]), sendable([input])
        to, fro = self._counts(mine, input_splits), self._counts(out, output_splits)
        return self._exchange([out], fro, [mine], to, [output], opts)

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        outs, parts = sendable(outputs), sendable(inputs)
        if not len(outs) == len(parts) == self._num:
            raise ValueError(f"all_to_all needs {self._num} tensors each way, and got {len(parts)} and {len(outs)}")
        fro, to = [out.numel() for out in outs], [part.numel() for part in parts]
        return self._exchange(outs, fro, parts, to, list(outputs), opts)

    def _counts(self, tensor: Tensor, splits: Sequence[int]) -> list[int]:
        """Rows per rank to elements per rank; no splits means equal ones."""
        rows = tensor.shape[0] if tensor.dim() else 0
        if not splits and rows % self._num == 0:
            return [tensor.numel() // self._num] * self._num
        if len(splits) != self._num or sum(splits) != rows:
            raise ValueError(f"all_to_all cannot split {rows} rows over {self._num} ranks by {list(splits)}")
        return [split * (tensor.numel() // max(rows, 1)) for split in splits]

    def _exchange(
        self, outs: list[Tensor], fro: list[int], parts: list[Tensor], to: list[int], result: list[Tensor], opts: Any
    ) -> Work:
        sendable([*outs, *parts])  # one dtype both ways

        def task() -> list[Tensor]:
            block = Block(outs)
            self._comm.Alltoallv(Block(parts).load().apart_from(block).slices(to), block.slices(fro))
            block.store()
            return result

        return self._do(task, opts)

    # ---- what other versions of torch call them (Any: its stubs want the old argument names as well) ----

    allreduce_coalesced: Any = allreduce
    allgather_coalesced: Any = allgather
    _allgather_base: Any = all_gather_single
    allgather_into_tensor_coalesced: Any = all_gather_single_coalesced
    _reduce_scatter_base: Any = reduce_scatter_single
    reduce_scatter_tensor_coalesced: Any = reduce_scatter_single_coalesced
    alltoall_base: Any = all_to_all_single
