"""Named ranges in torch's trace: one around every call of every module, one around each phase of a batch.

They mark; what is read from the marks is `accounts.py`'s business. The model is as it was when the last hook is removed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator
from typing import Any

import torch
from torch._C import _profiler

MODULE, PHASE = "module::", "phase::"
ROOT = "(model)"  # the model itself, which has no name among its modules

# What compiled code marks itself with: 1 us a range. `torch.profiler.record_function` is Python and takes 10 us, as long as
# a small layer; it stays as the second choice because this name is torch's own business.
_Range: Any = getattr(_profiler, "_RecordFunctionFast", torch.profiler.record_function)


class Phases:
    """A batch's phases as ranges, switched like a stopwatch, so that one loop serves the clean and the traced pass."""

    def __init__(self) -> None:
        self._open: Any = None

    def switch(self, part: str) -> None:
        self.close()
        self._open = _Range(f"{PHASE}{part}")
        self._open.__enter__()

    def close(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


class _Stack(threading.local):
    """The open ranges of one thread: a model may call its modules from several."""

    def __init__(self) -> None:
        self.open: list[Any] = []


@contextlib.contextmanager
def around_modules(model: torch.nn.Module) -> Generator[None]:
    """While the block runs, every call of a module is a range with its qualified name and class.

    The hooks return nothing, so that inputs and outputs of any kind pass as they are. A shared module has the first of its
    names, as in `named_modules`. A module that raises closes its range (`always_call`).
    """
    stack = _Stack()
    handles: list[Any] = []
    try:
        for name, module in model.named_modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue  # it takes no hooks once it is compiled; its operators count as its caller's own
            handles += _hooked(module, f"{MODULE}{name or ROOT}|{type(module).__name__}", stack)
        yield
    finally:
        for handle in handles:
            handle.remove()


def _hooked(module: torch.nn.Module, label: str, stack: _Stack) -> list[Any]:
    def before(*_: Any) -> None:
        mark = _Range(label)
        stack.open.append(mark)
        mark.__enter__()

    def after(*_: Any) -> None:
        stack.open.pop().__exit__(None, None, None)

    # Our hooks run first and last, so that the time of the user's own hooks counts as the module's.
    return [
        module.register_forward_pre_hook(before, prepend=True),
        module.register_forward_hook(after, always_call=True),
    ]
