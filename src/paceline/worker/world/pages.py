"""A file's memory, mapped so that the kernel can lay it in huge pages.

A batch is rows from all over the data. In pages of 4 KB nearly every row is in one that the processor has to look up: 128 rows of 2 KB
took 64 us so, and 47 in pages of 2 MB. numpy asks for huge pages for arrays of its own. Those of a file are there on demand only
(since Linux 6.1), and only where the address is a multiple of their size, which Python's mmap does not see to.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import weakref
from typing import Any

HUGE = 1 << 21
_FIXED, _COLLAPSE = 0x10, 25  # of Linux; Python has no names for them


def mapped(handle: int, nbytes: int, *, populate: bool = False) -> memoryview:
    """Map a file to read and write, shared with all who map the same file. It is unmapped when the last view of it is gone."""
    room = _mmap(None, nbytes + HUGE, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
    start = -(-room // HUGE) * HUGE
    flags = mmap.MAP_SHARED | _FIXED | (mmap.MAP_POPULATE if populate else 0)
    try:
        _mmap(start, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, handle)
    except OSError:
        _give_back(room, nbytes + HUGE)
        raise
    memory = (ctypes.c_ubyte * nbytes).from_address(start)
    # do not unmap at exit: tensors in it may live as long as the process
    weakref.finalize(memory, _give_back, room, nbytes + HUGE).atexit = False
    return memoryview(memory).cast("B")


def lay_in_huge(view: memoryview) -> int:
    """Ask the kernel for huge pages; to be called before the memory is filled, because what is there would be copied. A kernel that
    does not know the request, or has no such pages left, changes nothing. Returns 0, or the errno of the refusal."""
    num = len(view) // HUGE
    for page in range(num):
        view[page * HUGE] = view[page * HUGE]  # touch each page: only pages that exist can be collapsed into huge ones
    if not num:
        return 0
    start = ctypes.addressof(ctypes.c_ubyte.from_buffer(view))
    _libc().madvise(start, num * HUGE, mmap.MADV_HUGEPAGE)
    return ctypes.get_errno() if _libc().madvise(start, num * HUGE, _COLLAPSE) else 0


def _mmap(address: int | None, nbytes: int, protection: int, flags: int, handle: int) -> int:
    start = _libc().mmap(address, nbytes, protection, flags, handle, 0)
    if start == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return start


def _give_back(start: int, nbytes: int) -> None:
    _libc().munmap(start, nbytes)


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.argtypes, libc.mmap.restype = (pointer, size, number, number, number, ctypes.c_int64), pointer
    libc.munmap.argtypes, libc.madvise.argtypes = (pointer, size), (pointer, size, number)
    return libc
