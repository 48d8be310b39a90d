"""Exact evaluation: every test sample scored once over all ranks, sums and counts reduced, and the count checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.spec.axes.shardings import SHARDINGS
from paceline.worker.assemble import Parts
from paceline.worker.measure.device import settle
from paceline.worker.measure.tally import LOSS, Tally
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.tasks.feed import Feed, batches
from paceline.worker.tasks.order import Piece, evaluation_pieces, training_pieces
from paceline.worker.transform.buffers import reconcile
from paceline.worker.transform.precision import Arithmetic

# Where the model itself has collectives, a rank that has no sample left runs this one to take part; its outputs are dropped.
_STAND_IN = Piece(np.zeros(1, dtype=np.int64), 0)


def evaluate(parts: Parts, names: list[str] | None = None) -> tuple[Tally, Tally]:
    """(this rank's tally, everybody's). The model is one model first: running statistics are reconciled by the spec's rule.

    `names`: of the scores, as the last time, so that ranks need not agree on them again.
    """
    parts.sharding.synchronize(at_once=True)
    reconcile(parts.model, parts.world, rule=parts.spec.buffers)
    local = score(parts.task_module, parts.test, _pieces(parts), parts.arithmetic)
    settle(parts.world.device)
    total = local.over(parts.world, names) if parts.sharding.share.num > 1 else local
    _exactly(total, parts.test)
    return local, total


def evaluate_alone(task_module: TaskModule, feed: Feed, arithmetic: Arithmetic, *, batch: int) -> Tally:
    """A model by itself, in one process: no world, no sharding, no training run."""
    total = score(task_module, feed, evaluation_pieces(feed.num, batch=batch, rank=0, world_size=1), arithmetic)
    _exactly(total, feed)
    return total


def score(task_module: TaskModule, feed: Feed, pieces: Sequence[Piece], arithmetic: Arithmetic) -> Tally:
    """Loss and scores of these samples, in the format of the weights, which under mixed precision is fp32."""
    tally, task, model = Tally(), task_module.task, task_module.model
    was_training = model.training
    model.eval()
    asked = [piece if len(piece.ids) else _STAND_IN for piece in pieces]
    with torch.no_grad(), arithmetic.evaluation():
        for piece, batch in zip(pieces, batches(feed, asked), strict=True):
            num = len(piece.ids)
            outputs = arithmetic.full_precision(task_module(batch))
            if num:
                loss = task.loss_sum(outputs, batch, num)
                tally.add({LOSS: loss, **task.score_sums(outputs, batch, num)}, num)
    model.train(was_training)
    return tally


def _exactly(total: Tally, feed: Feed) -> None:
    if total.num != feed.num:
        raise RunFailed(f"evaluated {total.num} of {feed.num} test samples: the score would be wrong", kind="inexact")


def _pieces(parts: Parts) -> list[Piece]:
    share, num, batch = parts.sharding.share, parts.test.num, parts.spec.test_batch
    if SHARDINGS[parts.spec.sharding].lockstep:  # the same number of batches on every rank
        every = np.arange(num, dtype=np.int64)
        return training_pieces(every, batch=batch * share.num, rank=share.index, world_size=share.num)
    return evaluation_pieces(num, batch=batch, rank=share.index, world_size=share.num)
