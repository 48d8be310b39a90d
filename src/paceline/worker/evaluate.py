"""Exact evaluation: every test sample scored once over all ranks, sums and counts reduced, and the count checked."""

from __future__ import annotations

import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.measure.device import settle
from paceline.worker.measure.tally import LOSS, Tally
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.order import evaluation_pieces
from paceline.worker.tasks.task import Task
from paceline.worker.transform.buffers import reconcile
from paceline.worker.world.join import World


def evaluate(model: torch.nn.Module, task: Task, feed: Feed, spec: Spec, world: World) -> tuple[Tally, Tally]:
    """(this rank's tally, everybody's). The model is one model first: running statistics are reconciled by the spec's rule."""
    reconcile(model, world, rule=spec.buffers)
    local = Tally()
    was_training = model.training
    model.eval()
    pieces = evaluation_pieces(feed.num, batch=spec.test_batch, rank=world.rank, world_size=world.size)
    with torch.no_grad():
        for piece, batch in zip(pieces, feed.batches(pieces), strict=True):
            num = len(piece.ids)
            outputs = task.forward(model, batch)
            loss, count = task.loss_sum(outputs, batch, num)
            local.add({LOSS: (loss, count), **task.score_sums(outputs, batch, num)}, num)
    settle(world.device)
    model.train(was_training)
    total = local.over(world)
    if total.num != feed.num:
        raise RunFailed(f"evaluated {total.num} of {feed.num} test samples: the score would be wrong", kind="inexact")
    return local, total
