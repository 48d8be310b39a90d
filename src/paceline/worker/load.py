"""`paceline.load(run_dir)`: the trained model, in the user's own process."""

from __future__ import annotations

from os import PathLike

import torch

from paceline.worker.trained import load_trained


def load(run_dir: str | PathLike[str], *, weights: str = "last", changed_source: bool = False) -> torch.nn.Module:
    """The model as the run left it, in evaluation mode, on the CPU; `weights="best"`: as it was when it scored best, of a run with
    `keep=best`. Where the task's file, or a module it imports, has changed since the
    run, its weights may mean something else now: that is refused, unless `changed_source=True` says that it may be."""
    return load_trained(run_dir, weights=weights, changed_source=changed_source).model
