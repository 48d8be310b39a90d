"""What a rank tells the world about itself: events for us, scalars for TensorBoard, from one call each."""

from __future__ import annotations

from paceline.records.events import Epoch, Event, EventLog, Mark
from paceline.records.layout import RunDir
from paceline.records.tensorboard import ScalarFile
from paceline.worker.measure.clock import wall
from paceline.worker.world.join import World


class Observer:
    """Writes; it never computes, never communicates."""

    def __init__(self, run: RunDir, world: World, log: EventLog) -> None:
        self._log = log
        self._world = world
        self._scalars = ScalarFile(run.tensorboard(world.rank), t=wall())

    def write(self, event: Event) -> None:
        self._log.write(event)
        if isinstance(event, Mark):
            values = {f"train/{name}": value for name, value in event.local.items()}
            self._scalars.add(values, step=event.iteration, t=event.t)
        elif isinstance(event, Epoch):
            values = {f"{event.split}_epoch/{name}": value for name, value in event.local.items()}
            if self._world.rank == 0:
                values |= {f"{event.split}_all_ranks/{name}": value for name, value in event.total.items()}
            self._scalars.add(values, step=event.iteration, t=event.t)

    def close(self) -> None:
        self._scalars.close()
