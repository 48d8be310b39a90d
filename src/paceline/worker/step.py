"""The step: how one batch becomes one update, eagerly. It says which phases it can tell apart and times just those."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.tally import LOSS, Tally
from paceline.worker.tasks.task import Task
from paceline.worker.transform.replicate import Replicated

Fed = Iterator[tuple[Any, int]]  # (batch, number of samples) of each micro-batch; fetching one is timed as `data`


class Step(Protocol):
    """How the loop sees every step. `computed`: the floating types layers gave, where the step looks; known after its first call."""

    phases: tuple[str, ...]
    computed: tuple[str, ...]

    def __call__(self, batches: Fed, tally: Tally) -> None: ...

    def hidden_s(self) -> float:
        """Seconds of communication that ran while this rank computed; the stopwatch must be settled."""
        ...

    def num_micro(self) -> int:
        """The most micro-batches any step had; on this rank."""
        ...

    def read_back(self) -> dict[str, Any]:
        """What it can say of itself for the record."""
        ...


class EagerStep:
    """Forward, loss, backward for each micro-batch, then one reduction and one update."""

    phases: tuple[str, ...] = ("forward", "backward", "communication", "optimizer")

    def __init__(
        self,
        model: torch.nn.Module,
        task: Task,
        optimizer: torch.optim.Optimizer,
        replicas: Replicated,
        watch: Stopwatch,
        *,
        accumulate: int,
    ) -> None:
        self.model, self.task, self.optimizer, self.replicas, self.watch = model, task, optimizer, replicas, watch
        self.computed: tuple[str, ...] = ()
        self._num_micro = 0
        # Alone and in one piece, the mean's gradient directly; otherwise the sum's, divided at the end by what was really seen.
        self._in_one_piece = replicas.world.size == 1 and accumulate == 1

    def __call__(self, batches: Fed, tally: Tally) -> None:
        """A rank that has no sample in this step is fed nothing; it still takes part in the reduction."""
        forward, backward, communication, update = self.phases
        total, num_micro = 0.0, 0
        self.watch.switch(update)
        self.optimizer.zero_grad(set_to_none=True)
        for batch, num in batches:
            self.watch.switch(forward)
            outputs = self.task.forward(self.model, batch)
            loss, count = self.task.loss_sum(outputs, batch, num)
            with torch.no_grad():
                tally.add({LOSS: (loss, count), **self.task.score_sums(outputs, batch, num)}, num)
            self.watch.switch(backward)
            (loss / count if self._in_one_piece else loss).backward()
            total += count
            num_micro += 1
        if self.replicas.world.size > 1:
            self.watch.switch(communication)
            self.replicas.reduce(total)
        elif not self._in_one_piece:
            self.replicas.divide(total)
        self.watch.switch(update)
        self.optimizer.step()
        self._num_micro = max(self._num_micro, num_micro)

    def hidden_s(self) -> float:
        """One message after the backward pass: nothing is left to compute that could hide it."""
        return 0.0

    def read_back(self) -> dict[str, Any]:
        return {"wrap": "none"}

    def num_micro(self) -> int:
        return self._num_micro
