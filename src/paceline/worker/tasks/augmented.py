"""A training batch as its task changes it (`augment`), checked: the task may change samples, not how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.tasks.task import Task


def augmented(task: Task, batch: Any, keys: torch.Tensor) -> Any:
    """The batch as the task changes it. Keys are of the samples, so every world size sees the same pixels."""
    assert task.augment is not None
    changed = task.augment(batch, keys)
    if _sizes(changed) != _sizes(batch):
        raise RunFailed(
            f"{task.name}: augment(batch, keys) was given tensors of {_sizes(batch)} samples and returned {_sizes(changed)}: "
            "it may change samples, not their number or the batch's form",
            kind="task",
        )
    return changed


def _sizes(batch: Any) -> Any:
    """How many samples each tensor of a batch holds, in the batch's own form; None where something is no batch."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    if isinstance(batch, Mapping):
        return {name: _sizes(value) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_sizes(value) for value in batch]
    return None
