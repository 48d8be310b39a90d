"""Exact evaluation: every test sample scored once over all ranks, sums and counts reduced, and the count checked."""

from __future__ import annotations

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.measure.device import settle
from paceline.worker.measure.tally import LOSS, Tally
from paceline.worker.sharding.sharding import Sharding
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.tasks.feed import Feed, batches
from paceline.worker.tasks.order import Piece, evaluation_pieces, training_pieces
from paceline.worker.transform.buffers import reconcile
from paceline.worker.transform.precision import Arithmetic
from paceline.worker.world.join import World

# Where ranks meet inside the model, one that has no sample left comes along with this one, and its outputs are thrown away.
_STAND_IN = Piece(np.zeros(1, dtype=np.int64), 0)


def evaluate(
    task_module: TaskModule,
    feed: Feed,
    spec: Spec,
    sharding: Sharding,
    arithmetic: Arithmetic,
    world: World,
    names: list[str] | None = None,
) -> tuple[Tally, Tally]:
    """(this rank's tally, everybody's). The model is one model first: running statistics are reconciled by the spec's rule.

    It is scored in the format of its weights, which under mixed precision is fp32. `names`: of the scores, as the last time.
    """
    sharding.one_model()
    reconcile(task_module.model, world, rule=spec.buffers)
    local, task = Tally(), task_module.task
    was_training = task_module.model.training
    task_module.model.eval()
    pieces = _pieces(feed.num, spec, sharding)
    asked = [piece if len(piece.ids) else _STAND_IN for piece in pieces]
    with torch.no_grad(), arithmetic.evaluation():
        for piece, batch in zip(pieces, batches(feed, asked), strict=True):
            num = len(piece.ids)
            outputs = arithmetic.full_precision(task_module(batch))
            if num:
                loss, count = task.loss_sum(outputs, batch, num)
                local.add({LOSS: (loss, count), **task.score_sums(outputs, batch, num)}, num)
    settle(world.device)
    task_module.model.train(was_training)
    total = local.over(world, names) if sharding.share.num > 1 else local
    if total.num != feed.num:
        raise RunFailed(f"evaluated {total.num} of {feed.num} test samples: the score would be wrong", kind="inexact")
    return local, total


def _pieces(num: int, spec: Spec, sharding: Sharding) -> list[Piece]:
    share = sharding.share
    if sharding.lockstep:  # the same number of batches on every rank
        every = np.arange(num, dtype=np.int64)
        return training_pieces(every, batch=spec.test_batch * share.num, rank=share.index, world_size=share.num)
    return evaluation_pieces(num, batch=spec.test_batch, rank=share.index, world_size=share.num)
