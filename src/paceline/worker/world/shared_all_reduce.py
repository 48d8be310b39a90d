"""`messages=memory`: sums over the ranks of one machine through memory they share, by a kernel of ours (`worker/kernels/reduce.cpp`).

For small models a step is latency: through sockets a message takes a fraction of a millisecond, through memory some microseconds.
Every rank sums in the order of the ranks, so all have the same bits.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.kernels.build import library
from paceline.worker.world.shared import Address, Peer, find, make, this_process

SLOT_BYTES = 1 << 20  # longer messages go in pieces
PART_BYTES = 1 << 18  # longer pieces are summed in parts, one by each rank
_SPIN_US = 100  # busy-wait if every rank has a core: equal ranks arrive within this time
_SLICE_US = 100_000  # then return to Python, to handle signals, dead peers and the time limit
_DONE, _DIFFERENT = 0, 2
_WIDTHS = {torch.float32: 4, torch.float64: 8}
Message = tuple[
    int, int, int, int, int, int
]  # arguments of reduce.cpp: layout, state, address, bytes, bytes per element, microseconds to wait


class _Layout(ctypes.Structure):
    """`SharedAllReduce` of reduce.cpp."""

    _fields_ = (
        ("memory", ctypes.c_void_p), ("slot_bytes", ctypes.c_uint64), ("part_bytes", ctypes.c_uint64), ("rank", ctypes.c_uint32),
        ("size", ctypes.c_uint32), ("spin_us", ctypes.c_uint32),
    )  # fmt: skip


class _State(ctypes.Structure):
    """`State` of reduce.cpp."""

    _fields_ = (
        ("at", ctypes.c_uint64), ("published", ctypes.c_uint32), ("phase", ctypes.c_uint32), ("other", ctypes.c_uint32),
        ("theirs", ctypes.c_uint64),
    )  # fmt: skip


class Room:
    """A buffer as tensors: one flat tensor, or pieces that follow each other. torch sees a storage of its own for each piece, so its
    compiler does not look for aliasing, of which there is none."""

    def __init__(self, memory: Any, dtype: torch.dtype) -> None:
        self._memory, self._dtype = memory, dtype
        self.flat = torch.frombuffer(memory, dtype=dtype)

    def cut(self, sizes: Sequence[int]) -> list[torch.Tensor]:
        ends = [self._dtype.itemsize * end for end in itertools.accumulate(sizes, initial=0)]
        return [
            torch.frombuffer(self._memory, dtype=self._dtype, count=size, offset=start) if size else self.flat[:0]
            for start, size in zip(ends, sizes, strict=False)
        ]


class Gone(RuntimeError):
    """Another rank died or did not come in time. Its message reads like a lost connection, so that `collectives.together` knows it."""


class SharedAllReduce:
    """A rank makes one and keeps it until it ends. `num` counts the sums; the first, of ones, is made here as a check.

    A compiled step, which can read the other ranks' slots itself, needs no sum: `publish()`, `wait()`, read the slots, `release()`.
    """

    def __init__(self, store: Any, *, rank: int, size: int, threads: int, timeout_s: float) -> None:
        kernels = library("reduce")
        pointer, number, wide = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64
        self._sum, self._publish, self._wait, self._release = (
            kernels.reduce_sum,
            kernels.reduce_publish,
            kernels.reduce_wait,
            kernels.reduce_release,
        )
        self._sum.argtypes = self._publish.argtypes = self._wait.argtypes = (
            pointer,
            pointer,
            pointer,
            wide,
            number,
            wide,
        )
        self._release.argtypes, self._release.restype = (pointer, pointer), None
        kernels.reduce_bytes.argtypes, kernels.reduce_bytes.restype = (number, wide), wide
        kernels.reduce_slot.argtypes, kernels.reduce_slot.restype = (number, number, wide), wide
        self._slots = [kernels.reduce_slot(other, size, SLOT_BYTES) for other in range(size)]
        self._rank, self._timeout_s, self.num = rank, timeout_s, 0
        self._memory = _join(store, rank, nbytes=kernels.reduce_bytes(size, SLOT_BYTES))
        self._peers, cores = _peers(store, rank, size)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory.view))
        spin = _SPIN_US if size * threads <= cores else 0
        self._layout = _Layout(start, SLOT_BYTES, PART_BYTES, rank, size, spin)
        self._state = _State()
        self._at = ctypes.addressof(self._layout), ctypes.addressof(self._state)
        ones = torch.ones(3)
        self.all_reduce_(ones)
        if ones.tolist() != [size] * 3:
            raise RunFailed(
                f"messages=memory: {size} ranks summed ones through memory and got {ones.tolist()}: use messages=backend",
                kind="mismatch",
            )
        self._memory.close_door()  # all ranks have mapped it

    @staticmethod
    def takes(tensor: torch.Tensor) -> bool:
        return tensor.dtype in _WIDTHS and tensor.device.type == "cpu" and tensor.is_contiguous()

    def message(self, tensor: torch.Tensor) -> Message:
        return (*self._at, tensor.data_ptr(), tensor.nbytes, _WIDTHS[tensor.dtype], _SLICE_US)

    def all_reduce_(self, tensor: torch.Tensor) -> None:
        """Sum over all ranks, in place. `takes(tensor)` must be true."""
        if tensor.numel():
            self._until(self._sum, self.message(tensor))
        self.num += 1

    def rooms(self, num: int, dtype: torch.dtype) -> list[Room] | None:
        """The slots of all ranks for a message of this size. None if it is so large that it is sent in parts, one after the other
        through the same slot."""
        width = _WIDTHS.get(dtype)
        if width is None or num * width > PART_BYTES:
            return None
        return [Room(self._memory.view[start : start + num * width], dtype) for start in self._slots]

    def publish(self, message: Message) -> None:
        """Put the message into this rank's slot, for the others to read. This rank may do other work before it calls `wait`."""
        self._until(self._publish, message)

    def wait(self, message: Message) -> None:
        """Return when the messages of all ranks are in their slots."""
        self._until(self._wait, message)
        self.num += 1

    def release(self) -> None:
        """This rank has read all slots: the others may write into theirs again."""
        self._release(*self._at)

    def _until(self, call: Callable[..., int], message: Message) -> None:
        got, waited = call(*message), 0
        while got != _DONE:
            if got == _DIFFERENT:
                _, _, _, nbytes, width, _ = message
                raise RunFailed(
                    f"rank {self._rank} gave {_words(nbytes * 16 + width)} to a sum over ranks, and rank {self._state.other} "
                    f"{_words(self._state.theirs)}: they do not compute the same thing",
                    kind="mismatch",
                )
            waited += 1
            gone = [rank for rank, peer in self._peers.items() if peer.gone]
            # A peer may have published its message before it ended, so look once more.
            if (got := call(*message)) == _DONE:
                return
            if gone and got != _DIFFERENT:
                raise Gone(f"connection closed by rank {gone[0]}: its process is over")
            if waited * _SLICE_US > self._timeout_s * 1e6:
                raise Gone(f"timed out after {self._timeout_s:g} s of waiting for other ranks")


def _words(tag: int) -> str:
    nbytes, width = divmod(tag, 16)
    return f"{nbytes // width} numbers of {width} bytes"


def _join(store: Any, rank: int, *, nbytes: int) -> Any:
    """The shared memory: rank 0 makes it and writes its address into the store, the others map it."""
    if rank == 0:
        made = make(nbytes)
        store.set("paceline/all_reduce", ",".join(map(str, made.address.row())))
        return made
    address = Address(*map(int, store.get("paceline/all_reduce").decode().split(",")))
    shared = find(address)
    if shared is None or address.nbytes != nbytes:
        raise RunFailed(
            f"messages=memory: rank {rank} cannot see the memory of rank 0 (process {address.pid}), because they do not share one "
            "list of processes: use messages=backend",
            kind="mismatch",
        )
    return shared


def _peers(store: Any, rank: int, size: int) -> tuple[dict[int, Peer], int]:
    """The other ranks' processes, and the number of cores that all ranks may use together: each may be bound to some of them."""
    me, mine = this_process(), os.sched_getaffinity(0)
    store.set(f"paceline/process/{rank}", ",".join(map(str, (me.pid, me.began, *mine))))
    rows = [[int(word) for word in store.get(f"paceline/process/{other}").decode().split(",")] for other in range(size)]
    peers = {other: Peer(*row[:2]) for other, row in enumerate(rows) if other != rank}
    return peers, len(set[int]().union(*(row[2:] for row in rows)))
