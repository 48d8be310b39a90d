"""The bytes in use, as the allocator counts them: glibc's malloc on a host, torch's caching allocator on a GPU. It only reads.

The host's figure is malloc's own, because it sees every model alike: fp32 tensors, quantized ones, and weights that a library
packed for itself. A profiler that sees only torch's tensors found a quantized model "1000 times smaller" (report B).
"""

from __future__ import annotations

import ctypes
import gc
from typing import Protocol

import torch


class Allocator(Protocol):
    """`in_use` and `peak` count from the moment this object was made. `peak` is None where the allocator keeps none."""

    name: str

    def in_use(self) -> int: ...

    def peak(self) -> int | None: ...

    def forget_peak(self) -> None: ...

    def reserved(self) -> int | None: ...


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


class Malloc:
    """Bytes handed out by glibc: from its arenas (uordblks) and by mmap (hblkhd).

    Counting starts after torch was imported, so that memory of the libraries is not taken for the model's. Blocks under 1 KB
    that were freed may still be counted (each thread keeps some of them): noise of up to some 100 KB. A reading takes 3 us on a
    young heap, and walks every free block on one that is full of holes: up to tens of milliseconds.
    """

    name = "malloc"

    def __init__(self) -> None:
        self._mallinfo2 = ctypes.CDLL(None).mallinfo2
        self._mallinfo2.restype = _Mallinfo2
        self._before = 0
        self._before = self.in_use()

    def in_use(self) -> int:
        usage = self._mallinfo2()
        return usage.uordblks + usage.hblkhd - self._before

    def peak(self) -> None:
        return None

    def forget_peak(self) -> None:
        """There is none."""

    def reserved(self) -> None:
        return None

    def true(self) -> bool:
        """Whether tensors really come from glibc's malloc: another one may be preloaded (jemalloc, tcmalloc, mimalloc)."""
        before = self.in_use()
        tried = torch.empty(1 << 20, dtype=torch.uint8)
        grown = self.in_use() - before
        return tried.numel() <= grown < 2 * tried.numel()


class Cuda:
    name = "cuda"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def in_use(self) -> int:
        # `memory_allocated` makes a flat table of all its figures first, which takes ten times as long.
        return torch.cuda.memory_stats_as_nested_dict(self._device)["allocated_bytes"]["all"]["current"]

    def peak(self) -> int:
        return torch.cuda.max_memory_allocated(self._device)

    def forget_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)

    def reserved(self) -> int:
        return torch.cuda.max_memory_reserved(self._device)


HostMemory = tuple[Malloc | None, str | None]


class Left:
    """`with left: ...`, once or more: the bytes that these parts of the program left in use, in sum. 0 where nobody counts."""

    def __init__(self, allocator: Allocator | None = None) -> None:
        self._allocator, self._sum, self._before = allocator, 0, 0

    def __enter__(self) -> None:
        self._before = self._read()

    def __exit__(self, *error: object) -> None:
        self._sum += self._read() - self._before

    def _read(self) -> int:
        return 0 if self._allocator is None else self._allocator.in_use()

    @property
    def nbytes(self) -> int:
        """Never negative: more may be freed than was taken (garbage from before)."""
        return max(0, self._sum)


def host_memory() -> HostMemory:
    """(malloc, None), or (None, why it cannot be read). To be called before anything that is to be counted is allocated."""
    gc.freeze()  # garbage of the imports, collected later, would be taken for memory that the model gave back
    try:
        malloc = Malloc()
    except AttributeError:
        return None, "the C library has no mallinfo2 (glibc 2.33 or newer has)"
    if not malloc.true():
        return None, "tensors do not come from glibc's malloc in this process (another one is preloaded)"
    return malloc, None
