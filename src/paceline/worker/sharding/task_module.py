"""The task's forward as the forward of one module: what is wrapped, sharded, compiled or exported is always this.

A task may call parts of its model (`model[0](x)`), which a wrapped model has not; in here it gets its own, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.worker.tasks.task import Task


class TaskModule(torch.nn.Module):
    """`entrance`: what a batch becomes on its way in, where the model takes another format; the loss sees it as it was."""

    def __init__(self, model: torch.nn.Module, task: Task, entrance: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.model, self.task, self.entrance = model, task, entrance

    def forward(self, batch: Any) -> Any:
        return self.task.forward(self.model, batch if self.entrance is None else self.entrance(batch))
