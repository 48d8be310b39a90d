"""torch's collectives, said in MPI: a process group for an ordinary torch. It checks before it starts: later is too late.

Names and signatures are torch's: its C++ side finds a method by its name and passes by position. 2.13 calls
`all_gather_single`, earlier ones `_allgather_base`; both are here. Importing this file imports torch._dynamo (1 s, which
the first optimizer or DDP would pay anyway), so it is imported when a group is made.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.worker.world.mpi_buffers import Block, reduction, same_size, sendable
from paceline.worker.world.mpi_lane import Lane, Letter, Task, Work

if TYPE_CHECKING:
    from mpi4py import MPI


def _asked(opts: Any, name: str, default: Any) -> Any:
    return default if opts is None else getattr(opts, name, default)


def _untraced(group: type[MPIGroup]) -> type[MPIGroup]:
    """Under torch.compile, C++ calls these methods from inside a compiled region, and dynamo would try to compile them."""
    for name, method in list(vars(group).items()):
        if inspect.isfunction(method) and name != "__init__":
            setattr(group, name, torch.compiler.disable(method))
    return group


@_untraced
class MPIGroup(dist.ProcessGroup):
    def __init__(self, comm: MPI.Intracomm, *, name: str) -> None:
        super().__init__(comm.Get_rank(), comm.Get_size())  # pyright: ignore[reportCallIssue]  (the stub lacks this one)
        self._comm = comm
        self._me, self._num = comm.Get_rank(), comm.Get_size()
        self._name = name
        self._lane = Lane(f"mpi-{name}")
        self._letters: list[Letter] = []  # on their way: MPI still reads and writes their memory

    def getRank(self) -> int:
        return self._me

    def getSize(self) -> int:
        return self._num

    def getBackendName(self) -> str:
        return "mpi4py"

    # torch keeps a group's name in its backends, and we are a group without one: no name, no destroy_process_group.
    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def _get_backend(self, device: torch.device) -> Any:
        """A group of torch's own asks its backend what it can do; we are both."""
        return self if device.type == "cpu" else super()._get_backend(device)

    def shutdown(self) -> None:
        from mpi4py import MPI

        self._lane.close()
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()

    def _do(self, task: Task, opts: Any) -> Work:
        return self._lane.do(task, waits=not _asked(opts, "asyncOp", True))

    # ---- every rank gets the same ----

    def allreduce(self, tensors: Sequence[Tensor] | Tensor, opts: Any = None) -> Work:
        """Also the coalesced one. DDP's join gives a bare tensor and no options."""
        from mpi4py import MPI

        tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        parts = sendable(tensors)
        how = reduction(_asked(opts, "reduceOp", None), parts)

        def task() -> list[Tensor]:
            block = how.block(parts).load()
            self._comm.Allreduce(MPI.IN_PLACE, block.numbers(), op=how.op)
            how.finish(block, self._num)
            return tensors

        return self._do(task, opts)

    def broadcast(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        parts, root = sendable(tensors), _asked(opts, "rootRank", 0)

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

    # ---- one rank gives or gets ----

    def reduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        from mpi4py import MPI

        parts, root = sendable(tensors), _asked(opts, "rootRank", 0)
        how = reduction(_asked(opts, "reduceOp", None), parts)

        def task() -> list[Tensor]:
            block = how.block(parts).load()
            if self._me == root:
                self._comm.Reduce(MPI.IN_PLACE, block.numbers(), op=how.op, root=root)
                how.finish(block, self._num)
            else:
                self._comm.Reduce(block.numbers(), None, op=how.op, root=root)
            return list(tensors)

        return self._do(task, opts)

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any = None) -> Work:
        (mine,), root = sendable(inputs), _asked(opts, "rootRank", 0)
        outs = sendable(outputs[0]) if self._me == root else []
        if self._me == root:
            same_size(outs, num=self._num, elements=mine.numel(), what="gather")

        def task() -> list[Tensor]:
            everything = Block(outs) if self._me == root else None
            self._comm.Gather(Block([mine]).load().message(), everything and everything.message(), root=root)
            if everything is not None:
                everything.store()
            return list(outputs[0]) if self._me == root else list(inputs)

        return self._do(task, opts)

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any = None) -> Work:
        (mine,), root = sendable(outputs), _asked(opts, "rootRank", 0)
        parts = sendable(inputs[0]) if self._me == root else []
        if self._me == root:
            same_size(parts, num=self._num, elements=mine.numel(), what="scatter")

        def task() -> list[Tensor]:
            block = Block([mine])
            everything = Block(parts).load().message() if self._me == root else None
            self._comm.Scatter(everything, block.message(), root=root)
            block.store()
            return list(outputs)

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
        hows = [reduction(_asked(opts, "reduceOp", None), sendable([*mine, *parts])) for mine, parts in pairs]

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

    # ---- one rank to one rank ----

    def send(self, tensors: Sequence[Tensor], dst: int, tag: int) -> Work:
        block = Block(sendable(tensors)).load()
        return self._post(Letter(self._comm.Isend(block.message(), dest=dst, tag=tag), block, arriving=False))

    def recv(self, tensors: Sequence[Tensor], src: int, tag: int) -> Work:
        block = Block(sendable(tensors))
        return self._post(Letter(self._comm.Irecv(block.message(), source=src, tag=tag), block, arriving=True))

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int) -> Work:
        from mpi4py import MPI

        return self.recv(tensors, MPI.ANY_SOURCE, tag)

    def _post(self, letter: Letter) -> Letter:
        self._letters = [*(sent for sent in self._letters if not sent.is_completed()), letter]
        return letter

    # ---- what other versions of torch call them (Any: its stubs want the old argument names as well) ----

    allreduce_coalesced: Any = allreduce
    allgather_coalesced: Any = allgather
    _allgather_base: Any = all_gather_single
    allgather_into_tensor_coalesced: Any = all_gather_single_coalesced
    _reduce_scatter_base: Any = reduce_scatter_single
    reduce_scatter_tensor_coalesced: Any = reduce_scatter_single_coalesced
    alltoall_base: Any = all_to_all_single
