"""The training loop, on one page. It knows no setting by name but how long, how often and with which seed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from paceline.base.errors import RunFailed
from paceline.records.split import COMMUNICATION
from paceline.spec.run import Spec
from paceline.worker.assemble import Parts
from paceline.worker.evaluations import Evaluations
from paceline.worker.measure.observer import Observer
from paceline.worker.measure.tally import Tally
from paceline.worker.progress import Progress, warn_of_twice, write_pass
from paceline.worker.samples import Samples
from paceline.worker.tasks.order import Piece, epoch_order, training_pieces
from paceline.worker.tasks.task import users_code


def train(parts: Parts, progress: Progress) -> Tally:
    """Train from where the state stands as long as the spec says, evaluating after every epoch, at the end, and between steps where
    that is asked for; the last test tally comes back. An evaluation may say that the run is to stop (`ends.py`)."""
    spec, watch, position = parts.spec, parts.watch, parts.state.position
    evaluations = Evaluations(parts, progress.observe)
    parts.model.train()
    watch.switch("data")
    pieces = epoch_pieces(parts)
    for epoch in itertools.count(position.epoch):
        for num_global in steps(parts, pieces, progress):
            progress.after_step(epoch, num_global)
            if evaluations.due(len(pieces)) and evaluations.between(epoch):
                pieces = pieces[: position.in_epoch]  # the epoch ends here, and the run with it
                break
        seen = sum(piece.num_global for piece in pieces)
        last = parts.ends.stopped is not None or _is_last(spec, epoch, position.iteration)
        position.epoch, position.in_epoch = epoch + 1, 0
        if not last:  # now, while a GPU is still busy with the steps it was given: the mark waits for it
            watch.switch("data")
            pieces = epoch_pieces(parts)
        progress.mark(epoch)
        _write_training(progress.observe, parts, epoch, progress, seen)
        warn_of_twice(progress.observe, parts, "train")
        total = evaluations.after(epoch, last=last)
        progress.epoch = Tally()
        if last or parts.ends.stopped is not None:
            parts.memory.weigh()
            parts.arrivals.exchange()
            return total
    raise AssertionError("unreachable: the loop above returns")


def epoch_pieces(parts: Parts) -> list[Piece]:
    """The steps of the epoch that the state stands in, those that were made included."""
    spec, share, position = parts.spec, parts.sharding.share, parts.state.position
    order = epoch_order(parts.train.num, seed=spec.seed, epoch=position.epoch, shuffle=spec.shuffle)
    pieces = training_pieces(order, batch=spec.batch, rank=share.index, world_size=share.num)
    before = position.iteration - position.in_epoch  # steps of the epochs before this one
    return pieces if spec.steps is None else pieces[: spec.steps - before]


def steps(parts: Parts, pieces: list[Piece], progress: Progress) -> Iterator[int]:
    """Make the steps of an epoch that are still to be made; after each, the samples that all ranks saw in it."""
    spec, task, position = parts.spec, parts.task, parts.state.position
    parts.watch.switch("data")
    samples = Samples(parts.train, task, parts.watch, parts.world.device, seed=spec.seed, accumulate=spec.accumulate)
    with users_code(task.name, task.source):
        rest = pieces[position.in_epoch :]
        parts.by_number.before_epoch(position.epoch)
        for step_input in samples.steps(rest, epoch=position.epoch):
            parts.by_number.before_step(position.iteration)
            with parts.traffic:
                if parts.memory.looks:
                    with parts.memory:
                        parts.step(step_input, progress.window)
                else:
                    parts.step(step_input, progress.window)
            yield step_input.num_global


def _is_last(spec: Spec, epoch: int, done: int) -> bool:
    return (spec.epochs is not None and epoch + 1 >= spec.epochs) or (spec.steps is not None and done >= spec.steps)


def _write_training(observe: Observer, parts: Parts, epoch: int, progress: Progress, seen: int) -> None:
    """The epoch's training figures over all ranks; `seen`: the samples there should have been."""
    total = local = progress.epoch
    if parts.sharding.share.num > 1:
        parts.watch.switch(COMMUNICATION)
        total = local.over(parts.world, progress.names)
        progress.names = total.names
    if total.num != seen:
        raise RunFailed(f"trained on {total.num} samples in epoch {epoch + 1}, not on {seen}", kind="inexact")
    write_pass(observe, parts, "train", epoch, (local, total))
