"""What one step computes, written once: outputs, loss and scores of a batch, and what the loss is divided by. Executors decide how it
runs: operator by operator, as a graph, through accelerate, under a profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.worker.step.together import Together
from paceline.worker.tasks.forms import Loss, Sums
from paceline.worker.tasks.task import Task
from paceline.worker.transform.precision import Arithmetic


class StepDescription:
    """`in_one_piece`: the step has one rank and one micro-batch, so the gradient of the mean is computed directly.
    Otherwise it is the gradient of a sum, divided in the end by what all ranks counted. `together`: how the outputs of
    all ranks are gathered, for a loss that couples samples."""

    def __init__(
        self, task: Task, arithmetic: Arithmetic, *, in_one_piece: bool, together: Together | None = None
    ) -> None:
        self.task, self.arithmetic, self.in_one_piece, self.together = task, arithmetic, in_one_piece, together

    def outputs(self, forward: Callable[[Any], Any], batch: Any) -> Any:
        """Computed in the run's number format, and cast to fp32 for the loss where that is a half format."""
        with self.arithmetic.autocast():
            outputs = forward(batch)
        if self.arithmetic.looking:
            self.arithmetic.look(outputs)
        return self.arithmetic.full_precision(outputs)

    def loss(self, outputs: Any, batch: Any, num: int, num_global: int) -> Loss:
        """Of this rank's `num` samples among the `num_global` of the whole batch."""
        if self.together is not None:
            return self.together.loss(self.task, outputs, batch, num, num_global)
        return self.task.loss_of(outputs, batch, num, num_global)

    def sums(self, loss: Loss | None, outputs: Any, batch: Any, num: int) -> Sums:
        """Loss, its terms and the scores, for the tally."""
        with torch.no_grad():
            return {**({} if loss is None else loss.figures), **self.task.score_sums(outputs, batch, num)}

    def forward_loss(self, forward: Callable[[Any], Any], batch: Any, num: int, num_global: int) -> tuple[Loss, Sums]:
        """The loss, and everything for the tally."""
        outputs = self.outputs(forward, batch)
        loss = self.loss(outputs, batch, num, num_global)
        return loss, self.sums(loss, outputs, batch, num)

    def divided(self, loss: Loss, unit: float) -> torch.Tensor:
        """What `backward` is called on. `unit`: the divisor of the sums until the true count is known
        (`TrainState.unit`)."""
        return loss.total / (loss.count if self.in_one_piece else unit)
