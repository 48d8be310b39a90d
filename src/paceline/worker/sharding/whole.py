"""The task's forward as the forward of one module: what is wrapped, sharded, compiled or exported is always this.

A task may call parts of its model (`model[0](x)`), which a wrapped model has not; in here it gets its own, as everywhere.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.worker.tasks.task import Task


class Whole(torch.nn.Module):
    def __init__(self, model: torch.nn.Module, task: Task) -> None:
        super().__init__()
        self.model, self.task = model, task

    def forward(self, batch: Any) -> Any:
        return self.task.forward(self.model, batch)
