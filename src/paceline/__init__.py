"""Paceline: the fastest honest way to train a PyTorch model on the machines you have. Public names only, resolved on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.commands.run import run
    from paceline.commands.study import run_study
    from paceline.records.record import Record
    from paceline.worker.load import load
    from paceline.worker.tasks.forms import mean, ratio, total

# `run_study`, not `study`: the room `paceline.study` has that name, and an import of it would hide the function.
__all__ = ["Record", "load", "mean", "ratio", "run", "run_study", "total"]

_WHERE = {
    "Record": "paceline.records.record",
    "load": "paceline.worker.load",
    "mean": "paceline.worker.tasks.forms",
    "ratio": "paceline.worker.tasks.forms",
    "total": "paceline.worker.tasks.forms",
    "run": "paceline.commands.run",
    "run_study": "paceline.commands.study",
}


def __getattr__(name: str) -> Any:
    # Lazily: `import paceline` must cost nothing. `load`, and what a task's file uses (`mean`, `total`, `ratio`), bring torch.
    if name not in _WHERE:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)
