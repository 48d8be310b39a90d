"""`on_step` and `on_epoch`: what a task sets as a pure function of the step's or the epoch's number, such as a weight that is annealed."""

from __future__ import annotations

import torch

from paceline.worker.tasks.hooks import call
from paceline.worker.tasks.task import Task, users_code


class ByNumber:
    """Both count from 0. A run that goes on in the middle calls them as one that did not stop, so nothing need be saved."""

    def __init__(self, task: Task, model: torch.nn.Module, steps: int, epochs: int) -> None:
        self._task, self._model, self.steps, self._epochs = task, model, steps, epochs

    def before_epoch(self, epoch: int) -> None:
        if self._task.on_epoch is not None:
            with users_code(f"{self._task.name}: on_epoch", self._task.source):
                call(self._task.on_epoch, model=self._model, epoch=epoch, epochs=self._epochs)

    def before_step(self, step: int) -> None:
        if self._task.on_step is not None:
            with users_code(f"{self._task.name}: on_step", self._task.source):
                call(self._task.on_step, model=self._model, step=step, steps=self.steps)
