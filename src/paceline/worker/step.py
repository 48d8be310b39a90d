"""The step: how one batch becomes one update, eagerly. It says which phases it can tell apart and times just those."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.tally import LOSS, Tally
from paceline.worker.tasks.task import Task
from paceline.worker.transform.replicate import Replicated


class Step(Protocol):
    """How the loop sees every step. `computed`: the floating types layers gave, where the step looks; known after its first call."""

    phases: tuple[str, ...]
    computed: tuple[str, ...]

    def __call__(self, batch: Any, num: int, tally: Tally) -> None: ...

    def read_back(self) -> dict[str, Any]:
        """What it can say of itself for the record."""
        ...


class EagerStep:
    """Forward, loss, backward, one reduction, update. On a GPU work is queued, so its phases cannot be told apart here: `step`."""

    def __init__(
        self,
        model: torch.nn.Module,
        task: Task,
        optimizer: torch.optim.Optimizer,
        replicas: Replicated,
        watch: Stopwatch,
    ) -> None:
        self.model, self.task, self.optimizer, self.replicas, self.watch = model, task, optimizer, replicas, watch
        told_apart = ("forward", "backward", "communication", "optimizer")
        self.computed: tuple[str, ...] = ()
        self.phases: tuple[str, ...] = told_apart if replicas.world.device.type == "cpu" else ("step",) * 4

    def __call__(self, batch: Any, num: int, tally: Tally) -> None:
        """`batch` is None on a rank that has no sample in this one; it still takes part in the reduction."""
        forward, backward, communication, update = self.phases
        self.watch.switch(forward)
        self.optimizer.zero_grad(set_to_none=True)
        count = 0.0
        if batch is not None:
            outputs = self.task.forward(self.model, batch)
            loss, count = self.task.loss_sum(outputs, batch, num)
            with torch.no_grad():
                tally.add({LOSS: (loss, count), **self.task.score_sums(outputs, batch, num)}, num)
            self.watch.switch(backward)
            # Alone, the mean's gradient directly; among others, the sum's, divided after the reduction by what all saw.
            (loss / count if self.replicas.world.size == 1 else loss).backward()
        self.watch.switch(communication)
        self.replicas.reduce(count)
        self.watch.switch(update)
        self.optimizer.step()

    def read_back(self) -> dict[str, Any]:
        return {"wrap": "none"}
