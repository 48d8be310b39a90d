"""The training loop, on one page. It knows no setting by name but how long, how often and with which seed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.records.events import Epoch, Mark
from paceline.records.split import COMMUNICATION
from paceline.records.steady import WARMUP_STEPS
from paceline.worker.assemble import Parts
from paceline.worker.evaluate import evaluate
from paceline.worker.measure.clock import wall
from paceline.worker.measure.observer import Observer
from paceline.worker.measure.tally import Tally, finite
from paceline.worker.step import Fed
from paceline.worker.tasks.order import Ids, Piece, epoch_order, micro_pieces, sample_keys, training_pieces
from paceline.worker.tasks.task import users_code

_TRAINING = ("data", "forward", "backward", COMMUNICATION, "optimizer", "step")


def train(parts: Parts, observe: Observer) -> Tally:
    """Train as long as the spec says, evaluating after every epoch and at the end; the last test tally comes back."""
    spec, watch, share = parts.spec, parts.watch, parts.sharding.share
    pace = _Pace(parts, observe)
    parts.model.train()
    for epoch in itertools.count():
        watch.switch("data")
        order = epoch_order(parts.train.num, seed=spec.seed, epoch=epoch, shuffle=spec.shuffle)
        pieces = training_pieces(order, batch=spec.batch, rank=share.index, world_size=share.num)
        if spec.steps is not None:
            pieces = pieces[: spec.steps - pace.iteration]
        with users_code(parts.task.name, parts.task.source):
            for num_global, fed in _steps(parts, pieces, epoch):
                with parts.traffic, parts.memory if parts.memory.looks else contextlib.nullcontext():
                    parts.step(fed, pace.window)
                pace.after_step(epoch, num_global)
        pace.mark(epoch)
        _write(observe, parts, "train", epoch, pace, pace.epoch, seen=sum(piece.num_global for piece in pieces))
        watch.switch("evaluation")
        parts.memory.evaluating(True)
        with users_code(f"{parts.task.name} (evaluation)", parts.task.source):
            local, total = evaluate(parts.whole, parts.test, spec, parts.sharding, parts.numbers, parts.world)
        parts.memory.evaluating(False)
        _write(observe, parts, "test", epoch, pace, local, total=total)
        pace.epoch = Tally()
        if (spec.epochs is not None and epoch + 1 >= spec.epochs) or (
            spec.steps is not None and pace.iteration >= spec.steps
        ):
            parts.arrivals.exchange()
            return total
    raise AssertionError("unreachable: the loop above returns")


def augmented(parts: Parts, batch: Any, ids: Ids, epoch: int) -> Any:
    """The batch as the task changes it, if it does. Keys are of the samples, so every world size sees the same pixels."""
    if parts.task.augment is None:
        return batch
    keys = torch.from_numpy(sample_keys(ids, seed=parts.spec.seed, epoch=epoch))
    changed = parts.task.augment(batch, keys.to(parts.world.device))
    if _sizes(changed) != _sizes(batch):
        raise RunFailed(
            f"{parts.task.name}: augment(batch, keys) was given tensors of {_sizes(batch)} samples and returned {_sizes(changed)}: "
            "it may change samples, not their number or the batch's form",
            kind="task",
        )
    return changed


def _sizes(batch: Any) -> Any:
    """How many samples each tensor of a batch holds, in the batch's own form; None where something is no batch."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    if isinstance(batch, dict):
        return {name: _sizes(value) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_sizes(value) for value in batch]
    return None


def _steps(parts: Parts, pieces: Sequence[Piece], epoch: int) -> Iterator[tuple[int, Fed]]:
    """For each step the samples all ranks see in it, and this rank's micro-batches, which are fetched as the step asks for them."""
    cut = [micro_pieces(piece, parts.spec.accumulate) for piece in pieces]
    batches = iter(parts.train.batches([Piece(ids, len(ids)) for micro in cut for ids in micro]))

    def fed(micro: Sequence[Any]) -> Fed:
        for index, ids in enumerate(micro):
            parts.watch.switch("data")
            yield augmented(parts, next(batches), ids, epoch), len(ids), index + 1 == len(micro)

    for piece, micro in zip(pieces, cut, strict=True):
        yield piece.num_global, fed(micro)
    if (
        next(batches, None) is not None
    ):  # the end of a data set has a word to say: a stream may have been longer than stated
        raise AssertionError("more batches than were asked for")


class _Pace:
    """Counts iterations and writes a mark every `log_every` of them; waits for the device only there."""

    def __init__(self, parts: Parts, observe: Observer) -> None:
        self.parts, self.observe = parts, observe
        self.iteration = 0
        self.window, self.epoch = Tally(), Tally()
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
            total = local.over(parts.world)
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
