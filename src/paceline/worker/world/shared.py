"""Memory that the ranks of one machine share: made by one of them, found by the others through the kernel. It has no name on any disk.

A memfd lives as long as somebody has it open or mapped, so nothing is left behind however a rank ends, and it is not bound to the
size of /dev/shm, which containers keep small. The others open it as `/proc/PID/fd/N`, which the kernel allows to the same user only.
"""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from paceline.base.errors import RunFailed
from paceline.worker.world.pages import lay_in_huge, mapped

HEAD = 64  # bytes before the shared data; they hold the mark that tells the right memory from another
_MARK = 8


@dataclass(frozen=True, slots=True)
class Address:
    """Where to find it, as four whole numbers: they travel as a row of a tensor, or as text."""

    pid: int
    handle: int
    mark: int
    nbytes: int

    def row(self) -> list[int]:
        return [self.pid, self.handle, self.mark, self.nbytes]


class Shared:
    """`view` is the memory after its head. Call `close_door` when all ranks have mapped it: it closes our file handle."""

    def __init__(self, handle: int, address: Address, *, populate: bool = False) -> None:
        self._handle: int | None = handle
        self.address = address
        self.memory = mapped(handle, HEAD + address.nbytes, populate=populate)

    @property
    def view(self) -> memoryview:
        return self.memory[HEAD:]

    def close_door(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def make(nbytes: int, *, huge: bool = False) -> Shared:
    """New memory, full of zeros. Its pages are allocated when they are first written, huge ones at once."""
    if sys.platform != "linux":
        raise RunFailed(f"memory between ranks is shared on Linux only, and this is {sys.platform}", kind="mismatch")
    try:
        handle = os.memfd_create("paceline", os.MFD_CLOEXEC)
        os.ftruncate(handle, HEAD + nbytes)
        made = Shared(handle, Address(os.getpid(), handle, secrets.randbits(62), nbytes))
    except OSError as error:
        raise RunFailed(
            f"{nbytes} bytes of memory could not be shared between ranks ({error.strerror})", kind="memory"
        ) from error
    if huge:
        lay_in_huge(made.memory)
    made.memory[:_MARK] = made.address.mark.to_bytes(_MARK, "little")
    return made


def find(address: Address, *, populate: bool = False) -> Shared | None:
    """The memory another rank made. None where the kernel does not show it to us (the ranks are in different PID namespaces)."""
    try:
        handle = os.open(f"/proc/{address.pid}/fd/{address.handle}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if os.fstat(handle).st_size != HEAD + address.nbytes:
            return None
        shared = Shared(os.dup(handle), address, populate=populate)
    except OSError:  # a device, a folder: some other process has that number here
        return None
    finally:
        os.close(handle)
    if shared.memory[:_MARK] != address.mark.to_bytes(_MARK, "little"):
        shared.close_door()
        return None
    return shared


@dataclass(frozen=True, slots=True)
class Peer:
    """A process as the kernel knows it: its number, and when it began, because numbers are used again."""

    pid: int
    began: int

    @property
    def gone(self) -> bool:
        """Whether the process has ended; a zombie counts as ended."""
        fields = _stat(self.pid)
        return not fields or fields[0] in "ZX" or int(fields[19]) != self.began


def _stat(pid: int) -> list[str]:
    """Behind the name of the program, which may hold anything: the state comes first, the time it began is the 20th."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def this_process() -> Peer:
    return Peer(os.getpid(), int(_stat(os.getpid())[19]))
