"""Dying with the parent: a process whose parent was killed must not go on alone. The kernel sees to it, on Linux."""

from __future__ import annotations

import ctypes
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


def die_with_parent() -> None:
    bound()()
