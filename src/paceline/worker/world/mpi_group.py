"""torch's collectives, said in MPI: a process group for an ordinary torch. It checks before it starts: later is too late.

Names and signatures are torch's: its C++ side finds a method by its name and passes by position. 2.13 calls
`all_gather_single`, earlier ones `_allgather_base`; both are here. Importing this file imports torch._dynamo (1 s, which
the first optimizer or DDP would pay anyway), so it is imported when a group is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paceline.worker.world.mpi_buffers import Block, reduction, same_size, sendable
from paceline.worker.world.mpi_collectives import Collectives, asked, untraced
from paceline.worker.world.mpi_lane import Letter, Work

if TYPE_CHECKING:
    from mpi4py import MPI


@untraced
class MPIGroup(Collectives):
    """`Collectives`, and what needs to know who somebody is: the group's names, a root, a rank to talk to."""

    def __init__(self, comm: MPI.Intracomm, *, name: str) -> None:
        super().__init__(comm, name=name)
        self._name = name
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

    # ---- one rank gives or gets ----

    def reduce(self, tensors: Sequence[Tensor], opts: Any = None) -> Work:
        from mpi4py import MPI

        parts, root = sendable(tensors), asked(opts, "rootRank", 0)
        how = reduction(asked(opts, "reduceOp", None), parts)

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
        (mine,), root = sendable(inputs), asked(opts, "rootRank", 0)
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
        (mine,), root = sendable(outputs), asked(opts, "rootRank", 0)
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
