"""The step: how one batch becomes one update, eagerly. It says which phases it can tell apart and times just those."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.tally import LOSS, Tally
from paceline.worker.sharding.sharding import Sharding
from paceline.worker.tasks.task import Task
from paceline.worker.transform.precision import Arithmetic
from paceline.worker.update import Update

Micro = tuple[Any, int, bool]  # a micro-batch, its number of samples, whether it is the step's last


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step's samples stand among this rank's samples of the epoch, whose ids (and keys for augmentation) are on the device:
    `num` of them from `start` on. A step that is one graph comes by them itself."""

    ids: torch.Tensor
    keys: torch.Tensor | None
    start: int
    num: int


class StepInput:
    """What a step is given: its micro-batches, each fetched when it is asked for, which is timed as `data`. `place` is there where the
    data lies on the device as tensors. `num_global`: the samples of all ranks in this step, where there is more than one."""

    __slots__ = ("micro", "num_global", "place")

    def __init__(self, micro: Iterator[Micro], place: Place | None = None, num_global: int | None = None) -> None:
        self.micro, self.place, self.num_global = micro, place, num_global

    def __iter__(self) -> Iterator[Micro]:
        return self.micro


class Step(Protocol):
    """How the loop sees every step. `computed`: the floating types layers gave, where the step looks; known after its first call."""

    phases: tuple[str, ...]

    @property
    def computed(self) -> tuple[str, ...]: ...

    def __call__(self, step_input: StepInput, tally: Tally) -> None: ...

    def hidden_s(self) -> float:
        """Seconds of communication that ran while this rank computed; the stopwatch must be settled."""
        ...

    def num_micro(self) -> int:
        """The most micro-batches any step had; on this rank."""
        ...

    def read_back(self) -> dict[str, Any]:
        """What it can say of itself for the record."""
        ...

    def num_made(self) -> int | None:
        """How often it stopped to make a graph so far; None where it makes none."""
        ...

    def finish(self) -> dict[str, Any] | None:
        """After the last step: what making its graphs took, where it has any."""
        ...

    def close(self) -> None:
        """On every way out, whatever happened; a second time it does nothing."""
        ...


class EagerStep:
    """Forward, loss, backward for each micro-batch, then one reduction and one update."""

    phases: tuple[str, ...] = ("forward", "backward", "communication", "optimizer")

    def __init__(
        self, forward: Callable[[Any], Any], task: Task, update: Update, sharding: Sharding, arithmetic: Arithmetic, watch: Stopwatch,
        *, num_ranks: int, batch: int, accumulate: int, largest: Callable[[float], float],
    ) -> None:  # fmt: skip
        self.forward, self.task, self.update, self.sharding = forward, task, update, sharding
        self.arithmetic, self.watch, self._batch, self._largest = arithmetic, watch, batch, largest
        self._num_micro = 0
        self._talks = sharding.meets
        # Alone and in one piece, the mean's gradient directly; otherwise the sum's, divided at the end by what was really seen.
        self._in_one_piece = num_ranks == 1 and accumulate == 1
        # In a half format a sum over a batch would overflow: there it is divided by a constant near the count, which cancels.
        self._unit = 0.0 if arithmetic.half and not self._in_one_piece else 1.0

    @property
    def computed(self) -> tuple[str, ...]:
        return self.arithmetic.computed

    def __call__(self, step_input: StepInput, tally: Tally) -> None:
        """A rank that has no sample in this step is fed nothing; it still takes part in the reduction."""
        forward, backward, communication, update = self.phases
        total, num_micro = 0.0, 0
        self.watch.switch(update)
        self.update.begin()
        for batch, num, last in step_input:
            self.watch.switch(forward)
            with self.sharding.micro(last=last):
                with self.arithmetic.autocast():
                    outputs = self.forward(batch)
                if self.arithmetic.looking:
                    self.arithmetic.look(outputs)
                outputs = self.arithmetic.full_precision(outputs)
                loss, count = self.task.loss_sum(outputs, batch, num)
                with torch.no_grad():
                    tally.add({LOSS: (loss, count), **self.task.score_sums(outputs, batch, num)}, num)
                if not self._unit:
                    self._settle_unit(float(count) / num)
                self.watch.switch(backward)
                self.update.scaled(loss / (count if self._in_one_piece else self._unit)).backward()
            total = total + count
            num_micro += 1
        if not self._unit:
            self._settle_unit(0.0)
        if self._talks:
            self.watch.switch(communication)
        if not self._in_one_piece:
            self.sharding.reduce(total / self._unit)
        self.watch.switch(update)
        self.update()
        self._num_micro = max(self._num_micro, num_micro)

    def _settle_unit(self, counted: float) -> None:
        """Once, in the first step, by all ranks: what a batch counts to, where a sample counts to the most any rank has seen
        (its tokens, perhaps)."""
        if self._talks:
            self.watch.switch("communication")
        self._unit = self._batch * (self._largest(counted) or 1.0)

    @property
    def unit(self) -> float:
        """What sums are divided by on their way; known after the first step."""
        return self._unit

    def hidden_s(self) -> float:
        return self.sharding.hidden_s()

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
