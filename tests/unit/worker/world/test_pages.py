"""A file's memory, mapped: where huge pages can lie, shared, and given back."""

from __future__ import annotations

import ctypes
import errno
import gc
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.worker.world.pages import HUGE, lay_in_huge, mapped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared between ranks on Linux only")
SIZE = 3 * HUGE + 12_345


@pytest.fixture
def handle() -> Iterator[int]:
    found = os.memfd_create("paceline-test")
    os.ftruncate(found, SIZE)
    yield found
    os.close(found)


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(view))


def lines_of(start: int) -> list[str]:
    """What the kernel says of the mapping that begins there."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    first = next((n for n, line in enumerate(lines) if line.startswith(f"{start:x}-")), None)
    return [] if first is None else lines[first : first + 26]


def huge_bytes(view: memoryview) -> int:
    words = next(line.split() for line in lines_of(address(view)) if line.startswith("ShmemPmdMapped"))
    return int(words[1]) * 1024


def test_two_mappings_are_one_memory(handle: int) -> None:
    one, other = mapped(handle, SIZE), mapped(handle, SIZE, populate=True)
    assert len(one) == SIZE and address(one) % HUGE == address(other) % HUGE == 0 and address(one) != address(other)
    one[SIZE - 3 :] = b"abc"
    assert bytes(other[SIZE - 3 :]) == b"abc"


def test_it_is_given_back_with_the_last_view(handle: int) -> None:
    view = mapped(handle, SIZE)
    start, part = address(view), view[10:20]
    del view
    gc.collect()
    part[:] = b"0123456789"
    assert lines_of(start)
    del part
    gc.collect()
    assert not lines_of(start)


def test_what_cannot_be_mapped_is_an_error_and_leaves_nothing() -> None:
    before = len(Path("/proc/self/maps").read_text().splitlines())
    read, write = os.pipe()
    with pytest.raises(OSError, match=os.strerror(errno.EACCES)):
        mapped(read, SIZE)
    os.close(read)
    os.close(write)
    assert len(Path("/proc/self/maps").read_text().splitlines()) <= before


def _collapses() -> bool:
    """Linux has the call since 6.1, where huge pages are allowed to who asks for them."""
    release = tuple(int(word) for word in platform.release().split(".")[:2])
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return release >= (6, 1) and setting.exists() and "[never]" not in setting.read_text()


def test_huge_pages_hold_what_was_there(handle: int) -> None:
    """All whole ones; other mappings see them too. What was written stays, and so do the bytes behind the last whole one."""
    view = mapped(handle, SIZE)
    view[5:9], view[HUGE * 2 : HUGE * 2 + 3], view[SIZE - 3 :] = b"here", b"two", b"end"
    refused = lay_in_huge(view)
    assert (bytes(view[5:9]), bytes(view[HUGE * 2 : HUGE * 2 + 3]), bytes(view[SIZE - 3 :])) == (
        b"here",
        b"two",
        b"end",
    )
    assert bytes(view[9:100]) == bytes(91)
    other = mapped(handle, SIZE, populate=True)
    assert bytes(other[5:9]) == b"here"
    if not _collapses() or refused in (errno.ENOMEM, errno.EAGAIN, errno.EBUSY):
        pytest.skip("this kernel lays no shared memory in huge pages, or has none left")
    assert not refused
    assert huge_bytes(view) == huge_bytes(other) == 3 * HUGE


def test_too_little_for_a_huge_page_stays_as_it_is() -> None:
    small = os.memfd_create("paceline-test")
    os.ftruncate(small, 100)
    view = mapped(small, 100)
    assert lay_in_huge(view) == 0 and bytes(view) == bytes(100)
    os.close(small)
