"""The training loop, on one page. It knows no setting by name but how long, how often and with which seed."""

from __future__ import annotations

import itertools

from paceline.base.errors import RunFailed
from paceline.records.events import Epoch, Mark
from paceline.records.split import COMMUNICATION
from paceline.records.steady import WARMUP_STEPS
from paceline.spec.run import Spec
from paceline.worker.assemble import Parts
from paceline.worker.evaluate import evaluate
from paceline.worker.measure.clock import wall
from paceline.worker.measure.observer import Observer
from paceline.worker.measure.tally import Tally, finite
from paceline.worker.samples import Samples
from paceline.worker.tasks.order import Piece, epoch_order, training_pieces
from paceline.worker.tasks.task import users_code

_TRAINING = ("data", "forward", "backward", COMMUNICATION, "optimizer", "step")


def train(parts: Parts, observe: Observer) -> Tally:
    """Train as long as the spec says, evaluating after every epoch and at the end; the last test tally comes back."""
    spec, watch = parts.spec, parts.watch
    pace = _Pace(parts, observe)
    scores: list[str] | None = None  # of the test data, once all ranks have agreed on their names
    parts.model.train()
    watch.switch("data")
    coming = _pieces(parts, 0, pace.iteration)
    for epoch in itertools.count():
        watch.switch("data")
        pieces = coming
        with users_code(parts.task.name, parts.task.source):
            samples = Samples(
                parts.train, parts.task, pieces, watch, parts.world.device,
                seed=spec.seed, epoch=epoch, accumulate=spec.accumulate,
            )  # fmt: skip
            for num_global, step_input in samples.steps():
                with parts.traffic:
                    if parts.memory.looks:
                        with parts.memory:
                            parts.step(step_input, pace.window)
                    else:
                        parts.step(step_input, pace.window)
                pace.after_step(epoch, num_global)
        last = _is_last(spec, epoch, pace.iteration)
        if not last:  # now, while a GPU is still busy with the steps it was given: the mark waits for it
            watch.switch("data")
            coming = _pieces(parts, epoch + 1, pace.iteration)
        pace.mark(epoch)
        _write(observe, parts, "train", epoch, pace, pace.epoch, seen=sum(piece.num_global for piece in pieces))
        watch.switch("evaluation")
        parts.memory.evaluating(True)
        with users_code(f"{parts.task.name} (evaluation)", parts.task.source):
            local, total = evaluate(
                parts.task_module, parts.test, spec, parts.sharding, parts.arithmetic, parts.world, scores
            )
        scores = total.names
        parts.memory.evaluating(False)
        _write(observe, parts, "test", epoch, pace, local, total=total)
        pace.epoch = Tally()
        if last:
            parts.memory.weigh()
            parts.arrivals.exchange()
            return total
    raise AssertionError("unreachable: the loop above returns")


def _pieces(parts: Parts, epoch: int, done: int) -> list[Piece]:
    """The steps of an epoch, after `done` in the epochs before it."""
    spec, share = parts.spec, parts.sharding.share
    order = epoch_order(parts.train.num, seed=spec.seed, epoch=epoch, shuffle=spec.shuffle)
    pieces = training_pieces(order, batch=spec.batch, rank=share.index, world_size=share.num)
    return pieces if spec.steps is None else pieces[: spec.steps - done]


def _is_last(spec: Spec, epoch: int, done: int) -> bool:
    return (spec.epochs is not None and epoch + 1 >= spec.epochs) or (spec.steps is not None and done >= spec.steps)


class _Pace:
    """Counts iterations and writes a mark every `log_every` of them; waits for the device only there."""

    def __init__(self, parts: Parts, observe: Observer) -> None:
        self.parts, self.observe = parts, observe
        self.iteration = 0
        self.window, self.epoch = Tally(), Tally()
        self.names: list[str] | None = None  # of the scores, once all ranks have agreed on them
        self._num_global = 0
        self._spent = 0.0

    def after_step(self, epoch: int, num_global: int) -> None:
        self.iteration += 1
        self._num_global += num_global
        # The warm-up ends with a mark of its own, so that the steady state can leave it out.
        if self.iteration % self.parts.spec.log_every == 0 or self.iteration == WARMUP_STEPS:
            self.mark(epoch)

    def mark(self, epoch: int) -> None:
        if self._num_global == 0:
            return
        self.parts.watch.settle()
        self.parts.update.check()
        spent = self.parts.watch.spent(*_TRAINING)
        self.parts.watch.switch("logging")
        means = finite(
            self.window.means(),
            where=f"on rank {self.parts.world.rank} by iteration {self.iteration} (epoch {epoch + 1})",
        )
        self.observe.write(
            Mark(
                epoch=epoch, iteration=self.iteration, local=means, num_local=self.window.num, num_global=self._num_global,
                seconds=spent - self._spent, warmup=self.iteration <= WARMUP_STEPS, t=wall(),
            )
        )  # fmt: skip
        self.epoch.merge(self.window)
        self.window, self._num_global, self._spent = Tally(), 0, spent
        self.parts.energy.read()
        self.parts.step.hidden_s()  # adds up what it has kept of the last steps
        if self.parts.arrivals.full:
            self.parts.arrivals.exchange()


def _write(
    observe: Observer, parts: Parts, split: str, epoch: int, pace: _Pace, local: Tally,
    *, total: Tally | None = None, seen: int | None = None,
) -> None:  # fmt: skip
    if total is None:
        total = local
        if parts.sharding.share.num > 1:
            parts.watch.switch(COMMUNICATION)
            total = local.over(parts.world, pace.names)
            pace.names = total.names
    if seen is not None and total.num != seen:
        raise RunFailed(f"trained on {total.num} samples in epoch {epoch + 1}, not on {seen}", kind="inexact")
    parts.watch.switch("logging")
    parts.watch.settle()
    where = f"in {split} epoch {epoch + 1}"
    observe.write(
        Epoch(
            split=split, epoch=epoch, iteration=pace.iteration, local=finite(local.means(), where=where), num_local=local.num,
            total=finite(total.means(), where=where), num_total=total.num,
            of=parts.train.num if split == "train" else parts.test.num, lr=parts.update.lr, elapsed_s=parts.watch.elapsed(), t=wall(),
        )
    )  # fmt: skip
