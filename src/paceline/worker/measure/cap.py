"""`memory_cap`: the most a rank may take beside what its libraries hold. The kernel keeps it on a CPU, torch's allocator on a GPU.

A cap shows before the launch on a big machine what fits a small one, and that a model in parts fits where the whole does not.
"""

from __future__ import annotations

import errno
import mmap
import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.base.errors import RunFailed
from paceline.spec.rules.sharding import nbytes

# How memory that is not there is told, by torch, by libraries below it, and by the system.
_PATTERNS = ("can't allocate memory", "cannot allocate memory", "std::bad_alloc", "out of memory")
_THREADS = 26_000_000  # gloo's three, with the stacks Linux gives them; measured: 25.2 MB
_UNDER_A_CAP = ("can't start new thread", "resource temporarily unavailable")  # a thread's stack did not fit


class Cap:
    """The cap of this rank. `nbytes`: the limit in force now, read back from the system."""

    def __init__(self) -> None:
        self._before = 0
        self._device: Any = None

    def on_host(self, word: str) -> None:
        """Limit what is allocated from now on; what is allocated already belongs to the libraries. The kernel counts private writable
        memory, touched or not, so each thread costs its stack of 8 MB."""
        if sys.platform != "linux":
            raise RunFailed(
                f"memory_cap={word}: only Linux keeps such a limit, and this is {sys.platform}; leave it out",
                kind="mismatch",
            )
        self._before = _held()
        limit = self._before + nbytes(word)
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))
        except (ValueError, OSError) as error:
            raise RunFailed(
                f"memory_cap={word}: this process may not have that limit ({error})", kind="mismatch"
            ) from error
        if not _kept(nbytes(word)):
            raise RunFailed(
                f"memory_cap={word}: this system takes the limit and does not keep it; leave it out", kind="mismatch"
            )

    def on_device(self, word: str, device: Any) -> None:
        """Limit the memory of this rank's GPU. Called after the world was joined, which decides which GPU that is."""
        import torch

        self._device = device
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        if nbytes(word) > total_bytes:
            raise RunFailed(
                f"memory_cap={word}: this GPU has {total_bytes >> 20} MB in all; leave it out", kind="mismatch"
            )
        torch.cuda.set_per_process_memory_fraction(nbytes(word) / total_bytes, device)

    def before_threads(self) -> None:
        """Called before the world is joined: checks that there is room for the libraries' threads, which would hang or abort without."""
        if self._before and (left := resource.getrlimit(resource.RLIMIT_DATA)[0] - _held()) < _THREADS:
            raise RunFailed(
                f"{left / 1e6:.0f} MB are left after its data, and the threads that talk to other ranks need {_THREADS / 1e6:.0f} MB",
                kind="memory",
            )

    @property
    def nbytes(self) -> int | None:
        if self._device is not None:
            import torch

            share = torch.cuda.get_per_process_memory_fraction(self._device)
            return round(share * torch.cuda.get_device_properties(self._device).total_memory)
        limit = resource.getrlimit(resource.RLIMIT_DATA)[0]
        return limit - self._before if self._before and limit != resource.RLIM_INFINITY else None


def _held() -> int:
    """What the limit is counted in: private memory that can be written."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    return next(int(words[1]) for words in lines if words[:1] == ["VmData:"]) * 1024


def _kept(nbytes: int) -> bool:
    """Whether the system refuses an allocation above the limit. It is never touched, so it takes no memory."""
    try:
        mmap.mmap(-1, nbytes + (1 << 20), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        return error.errno == errno.ENOMEM
    return False


def ran_out(error: BaseException, *, rank: int, cap: str | None) -> RunFailed | None:
    """The end of a rank that had no memory left, as a sentence; None where it ended otherwise."""
    patterns = _PATTERNS if cap is None else (*_PATTERNS, *_UNDER_A_CAP)
    said = next((text for cause in _chain(error) if (text := _said(cause, patterns)) is not None), None)
    if said is None or (cap is None and isinstance(error, RunFailed)):  # a sentence already
        return None
    wanted = re.search(r"tried to allocate (\d+) bytes", said)
    detail = f"it wanted {int(wanted[1]) / 1e6:.1f} MB more" if wanted else said[:200]
    if cap is None:
        return RunFailed(
            f"rank {rank} ran out of memory ({detail}): use a smaller batch or model, or more ranks", kind="memory"
        )
    return RunFailed(
        f"rank {rank} ran out of memory ({detail}): memory_cap={cap} is all it may take beside its libraries; raise it, use a "
        "smaller batch or model, or cut the model over more ranks (sharding=fsdp, or sharding=embedding for tables)",
        kind="memory",
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _said(error: BaseException, patterns: tuple[str, ...]) -> str | None:
    text = error.why if isinstance(error, RunFailed) else " ".join(f"{type(error).__name__}: {error}".split())
    memory = (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or getattr(error, "kind", "") == "memory"
    )
    return text if memory or any(pattern in text.lower() for pattern in patterns) else None
