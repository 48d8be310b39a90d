"""Dying with the parent: a process whose parent was killed must not go on alone. The kernel sees to it, on Linux."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def bound() -> Callable[[], None]:
    """A call that binds the calling process to its parent; libc is looked up now, because after a fork little is safe."""
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    return bind


def die_with_parent(supervisor: int | None = None) -> None:
    """Bind to the parent, then make sure that it is not too late: `supervisor` must still be among our ancestors.

    A rank that torchrun or spawn started imports torch before it comes here; a supervisor killed in that time is
    never noticed by the kernel, because the rank is bound to whoever adopted it.
    """
    bound()()
    if supervisor is not None and sys.platform == "linux":
        import psutil

        if supervisor not in [process.pid for process in psutil.Process().parents()]:
            os._exit(1)
