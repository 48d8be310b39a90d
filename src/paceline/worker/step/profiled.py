"""The step under an instrument that is told of every phase, the loss by itself: what `paceline profile` runs. It tallies nothing."""

from __future__ import annotations

from typing import Any, Protocol

from paceline.worker.step.executor import StepParts


class Instrument(Protocol):
    """A stopwatch, or the profiler's phases."""

    def switch(self, part: str) -> None: ...


class ProfiledStep:
    """One process, one micro-batch: rules refuse more. `training`: otherwise it is the forward pass alone."""

    def __init__(self, parts: StepParts, *, training: bool) -> None:
        self._parts, self._training = parts, training

    def __call__(self, batch: Any, num: int, instrument: Instrument) -> None:
        description, update = self._parts.description, self._parts.update
        if self._training:
            instrument.switch("optimizer")
            update.begin()
        instrument.switch("forward")
        outputs = description.outputs(self._parts.task_module, batch)
        if not self._training:
            return
        instrument.switch("loss")
        loss = description.loss(outputs, batch, num, num)
        mean = update.scaled(description.divided(loss, self._parts.state.unit))
        instrument.switch("backward")
        mean.backward()
        instrument.switch("optimizer")
        update()
