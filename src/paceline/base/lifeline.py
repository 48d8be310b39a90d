"""When this process was started, and that it ends with its parent: both as the Linux kernel has them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def age_s() -> float:
    """Seconds since this process was started, interpreter and imports included, to 10 ms. 0 where the kernel does not
    tell."""
    if sys.platform != "linux":
        return 0.0
    # The name of the program stands in brackets and may hold anything; the 22nd field is when it began, in ticks since boot.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK"))


def bound() -> Callable[[], None]:
    """A function that binds the calling process to its parent. libc is looked up now, because little is safe after a
    fork."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return bind


def die_with_parent(supervisor: int | None = None) -> None:
    """Bind to the parent, then check that it is not too late: `supervisor` must still be among our ancestors. A rank
    that torchrun or spawn started imports torch before it comes here. If the supervisor is killed in that time, the
    kernel never tells the rank, which is bound to whoever adopted it."""
    bound()()
    if supervisor is not None and sys.platform == "linux":
        import psutil

        if supervisor not in [process.pid for process in psutil.Process().parents()]:
            os._exit(1)


def adopt_orphans() -> None:
    """From now on orphans of our descendants become our children instead of init's: nothing they start can escape
    us."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)
