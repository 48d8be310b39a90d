"""What one step computes, written once: outputs, loss and scores of a batch, and what the loss is divided by. Executors decide how it
runs: operator by operator, as a graph, through accelerate, under a profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.worker.measure.tally import LOSS, Sums
from paceline.worker.tasks.task import Task
from paceline.worker.transform.precision import Arithmetic


class StepDescription:
    """`in_one_piece`: the step has one rank and one micro-batch, so the gradient of the mean is computed directly.
    Otherwise it is the gradient of a sum, divided in the end by what all ranks counted."""

    def __init__(self, task: Task, arithmetic: Arithmetic, *, in_one_piece: bool) -> None:
        self.task, self.arithmetic, self.in_one_piece = task, arithmetic, in_one_piece

    def outputs(self, forward: Callable[[Any], Any], batch: Any) -> Any:
        """Computed in the run's number format, and cast to fp32 for the loss where that is a half format."""
        with self.arithmetic.autocast():
            outputs = forward(batch)
        if self.arithmetic.looking:
            self.arithmetic.look(outputs)
        return self.arithmetic.full_precision(outputs)

    def loss(self, outputs: Any, batch: Any, num: int) -> tuple[torch.Tensor, Any]:
        """(sum, count) over the batch's `num` samples."""
        return self.task.loss_sum(outputs, batch, num)

    def sums(self, loss: tuple[torch.Tensor, Any], outputs: Any, batch: Any, num: int) -> Sums:
        """Loss and scores, for the tally."""
        with torch.no_grad():
            return {LOSS: loss, **self.task.score_sums(outputs, batch, num)}

    def forward_loss(
        self, forward: Callable[[Any], Any], batch: Any, num: int
    ) -> tuple[tuple[torch.Tensor, Any], Sums]:
        """The loss, as (sum, count), and everything for the tally."""
        outputs = self.outputs(forward, batch)
        loss = self.loss(outputs, batch, num)
        return loss, self.sums(loss, outputs, batch, num)

    def divided(self, loss: tuple[torch.Tensor, Any], unit: float) -> torch.Tensor:
        """What `backward` is called on. `unit`: the divisor of the sums until the true count is known
        (`TrainState.unit`)."""
        total, count = loss
        return total / (count if self.in_one_piece else unit)
