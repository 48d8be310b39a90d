"""An executor runs the step that `description.py` describes. This is how the loop sees every one of them, and what each is built from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.tally import Tally
from paceline.worker.sharding.sharding import Sharding
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.step.description import StepDescription
from paceline.worker.step.input import StepInput
from paceline.worker.step.state import TrainState
from paceline.worker.step.update import Update
from paceline.worker.tasks.feed import TensorFeed
from paceline.worker.world.join import World


class Step(Protocol):
    """`phases`: the parts of the stopwatch that it fills. `computed`: the floating types layers gave; known after its first call."""

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


@dataclass(frozen=True, slots=True)
class StepParts:
    """What every executor works with. `batch`: of all ranks. `data`: the training data, where it lies on the device as tensors."""

    task_module: TaskModule
    description: StepDescription
    state: TrainState
    update: Update
    sharding: Sharding
    world: World
    watch: Stopwatch
    batch: int
    data: TensorFeed | None = None
