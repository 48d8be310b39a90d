"""How far training is: a mark every `log_every` steps, and the tallies it is made of. It waits for the device only there."""

from __future__ import annotations

from typing import Any

from paceline.records.events import Epoch, Mark, Warned
from paceline.records.split import COMMUNICATION
from paceline.records.steady import WARMUP_STEPS
from paceline.worker.assemble import Parts
from paceline.worker.measure.clock import wall
from paceline.worker.measure.observer import Observer
from paceline.worker.measure.tally import Tally, finite
from paceline.worker.same_data import same_pass

_TRAINING = ("data", "forward", "backward", COMMUNICATION, "optimizer", "step")


def write_pass(
    observe: Observer, parts: Parts, split: str, epoch: int, tallies: tuple[Tally, Tally], *, middle: bool = False
) -> None:
    """`tallies`: this rank's, and that of all ranks. `middle`: the epoch goes on."""
    local, total = tallies
    parts.watch.switch("logging")
    parts.watch.settle()
    where = f"in {split} epoch {epoch + 1}"
    observe.write(
        Epoch(
            split=split, epoch=epoch, iteration=parts.state.position.iteration, local=finite(local.means(), where=where),
            num_local=local.num, total=finite(total.means(), where=where), num_total=total.num,
            of=parts.train.num if split == "train" else parts.test.num, lr=parts.update.rates.lr, elapsed_s=parts.watch.elapsed(),
            t=wall(), middle=middle,
        )
    )  # fmt: skip


def warn_of_twice(observe: Observer, parts: Parts, split: str) -> None:
    """After a pass over a stream: refused where ranks had other samples, said where samples came more than once."""
    feed = parts.train if split == "train" else parts.test
    twice = same_pass(feed, split, parts.world, name=parts.task.name)
    if twice is not None and parts.world.rank == 0:
        observe.write(Warned("twice", twice, wall()))


class Progress:
    """`window`: since the last mark; `epoch`: since the epoch began, up to the last mark. Both are a part of the run's state."""

    def __init__(self, parts: Parts, observe: Observer) -> None:
        self.parts, self.observe = parts, observe
        self.window, self.epoch = Tally(), Tally()
        self.names: list[str] | None = None  # of the scores, once all ranks have agreed on them
        self._num_global = 0
        self._spent = 0.0
        parts.state.others["progress"] = self

    def after_step(self, epoch: int, num_global: int) -> None:
        self._num_global += num_global
        iteration = self.parts.state.position.iteration
        # The warm-up ends with a mark of its own, so that the steady state can leave it out.
        if iteration % self.parts.spec.log_every == 0 or iteration == WARMUP_STEPS:
            self.mark(epoch)

    def mark(self, epoch: int) -> None:
        if self._num_global == 0:
            return
        watch, iteration = self.parts.watch, self.parts.state.position.iteration
        watch.settle()
        self.parts.update.check()
        spent = watch.spent(*_TRAINING)
        watch.switch("logging")
        means = finite(
            self.window.means(), where=f"on rank {self.parts.world.rank} by iteration {iteration} (epoch {epoch + 1})"
        )
        self.observe.write(
            Mark(
                epoch=epoch, iteration=iteration, local=means, num_local=self.window.num, num_global=self._num_global,
                seconds=spent - self._spent, warmup=iteration <= WARMUP_STEPS, t=wall(),
            )
        )  # fmt: skip
        self.epoch.merge(self.window)
        self.window, self._num_global, self._spent = Tally(), 0, spent
        self.parts.energy.read()
        self.parts.step.hidden_s()  # adds up what it has kept of the last steps
        if self.parts.arrivals.full:
            self.parts.arrivals.exchange()

    def state(self) -> dict[str, Any]:
        return {"window": self.window.plain(), "epoch": self.epoch.plain(), "num_global": self._num_global}

    def restore(self, values: dict[str, Any]) -> None:
        self.window.refill(values["window"])
        self.epoch.refill(values["epoch"])
        self._num_global = values["num_global"]
        self._spent = self.parts.watch.spent(*_TRAINING)
