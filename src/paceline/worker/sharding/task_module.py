"""The task's forward as the forward of one module, which is what gets wrapped, sharded, compiled or exported.

A task may call parts of its model (`model[0](x)`), which a wrapped model does not offer. Inside this module it gets the
plain one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.worker.tasks.task import Task


class TaskModule(torch.nn.Module):
    """`entrance`: casts a batch for the model, where the model has another number format. The loss gets the batch as it
    was."""

    def __init__(self, model: torch.nn.Module, task: Task, entrance: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.model, self.task, self.entrance = model, task, entrance

    def forward(self, batch: Any) -> Any:
        return self.task.forward(self.model, batch if self.entrance is None else self.entrance(batch))
