"""The step operator by operator: it tells its phases apart and times each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paceline.worker.measure.tally import Tally
from paceline.worker.step.executor import StepParts
from paceline.worker.step.input import StepInput
from paceline.worker.world.collectives import all_reduce_max


class EagerStep:
    """Forward, loss, backward for each micro-batch, then one reduction and one update. `forward` may be a graph of the model."""

    phases: tuple[str, ...] = ("forward", "backward", "communication", "optimizer")

    def __init__(self, parts: StepParts) -> None:
        self.parts, self.watch, self.state = parts, parts.watch, parts.state
        self.forward: Callable[[Any], Any] = parts.sharding.module
        self._num_micro = 0
        # In a half format a sum over a batch would overflow: it is divided by a constant near the count, which cancels in the end.
        if parts.description.arithmetic.half and not parts.description.in_one_piece:
            self.state.unit = 0.0  # settled in the first step

    @property
    def computed(self) -> tuple[str, ...]:
        return self.parts.description.arithmetic.computed

    def __call__(self, step_input: StepInput, tally: Tally) -> None:
        """A rank that has no sample in this step is given nothing; it still takes part in the reduction."""
        forward, backward, communication, optimizer = self.phases
        description, sharding, update = self.parts.description, self.parts.sharding, self.parts.update
        total, num_micro = 0.0, 0
        self.watch.switch(optimizer)
        update.begin()
        for batch, num, last in step_input:
            self.watch.switch(forward)
            with sharding.accumulate(last=last):
                loss, sums = description.forward_loss(self.forward, batch, num, step_input.num_global)
                tally.add(sums, num)
                if not self.state.unit:
                    self._settle_unit(float(loss.count) / num)
                self.watch.switch(backward)
                update.scaled(description.divided(loss, self.state.unit)).backward()
            total = total + loss.count
            num_micro += 1
        if not self.state.unit:
            self._settle_unit(0.0)
        if sharding.reduces_over_ranks:
            self.watch.switch(communication)
        if not description.in_one_piece:
            sharding.reduce(total / self.state.unit)
        self.watch.switch(optimizer)
        update()
        self._num_micro = max(self._num_micro, num_micro)

    def _settle_unit(self, counted: float) -> None:
        """Once, in the first step, by all ranks: the batch size times the largest count of a sample (its tokens,
        perhaps) that any rank has seen."""
        if self.parts.sharding.reduces_over_ranks:
            self.watch.switch("communication")
        self.state.unit = self.parts.batch * (all_reduce_max([counted], self.parts.world)[0] or 1.0)

    def hidden_s(self) -> float:
        return self.parts.sharding.hidden_s()

    def read_back(self) -> dict[str, Any]:
        return {"wrap": "none", "graph": "eager", "graph_of": None}

    def num_made(self) -> int | None:
        return None

    def finish(self) -> dict[str, Any] | None:
        return None

    def close(self) -> None:
        """Nothing is open."""

    def num_micro(self) -> int:
        return self._num_micro
