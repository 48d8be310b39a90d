"""`paceline.load(run_dir)`: the trained model, in the user's own process."""

from __future__ import annotations

from os import PathLike

import torch

from paceline.worker.trained import load_trained


def load(run_dir: str | PathLike[str]) -> torch.nn.Module:
    """The model as the run left it, in evaluation mode, on the CPU."""
    return load_trained(run_dir).model
