"""Loss and scores of a model over some samples, in this process: no world, no sharding, no training run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.worker.measure.tally import Tally
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.step.description import StepDescription
from paceline.worker.step.together import Together
from paceline.worker.tasks import tree
from paceline.worker.tasks.feed import Feed, batches
from paceline.worker.tasks.order import Piece, evaluation_pieces
from paceline.worker.tasks.task import no_loss
from paceline.worker.transform.precision import Arithmetic
from paceline.worker.transform.side_effects import Kept
from paceline.worker.whole_set import WholeSet

# Where the model itself has collectives, a rank that has no sample left runs this one to take part; its outputs are dropped.
_STAND_IN = Piece(np.zeros(1, dtype=np.int64), 0)


def score_all(task_module: TaskModule, feed: Feed, arithmetic: Arithmetic, *, batch: int) -> Tally:
    """Every sample of the feed, once."""
    whole = WholeSet(task_module.task)
    pieces = evaluation_pieces(feed.num, batch=batch, rank=0, world_size=1)
    total = score(task_module, feed, pieces, arithmetic, whole)
    check_count(total, feed)
    total.add_means(whole.scores(None))
    return total


def score(
    task_module: TaskModule, feed: Feed, pieces: Sequence[Piece], arithmetic: Arithmetic, whole: WholeSet,
    together: Together | None = None,
) -> Tally:  # fmt: skip
    """These samples, in the format of the weights, which under mixed precision is fp32. `whole` keeps what scores of the whole test set
    need. `together`: for a loss that couples samples, over all ranks."""
    tally, model, task = Tally(), task_module.model, task_module.task
    description = StepDescription(task, arithmetic, in_one_piece=True, together=together)
    was_training = model.training
    model.eval()
    counts = Kept(model, task) if task.verdict.counts_in_evaluation else None
    asked = [piece if len(piece.ids) else _STAND_IN for piece in pieces]
    with torch.set_grad_enabled(task.verdict.differentiates), arithmetic.evaluation():
        for piece, batch in zip(pieces, batches(feed, asked), strict=True):
            num = len(piece.ids)
            if not task.evaluates:
                tally.add({}, num)
                continue
            outputs = arithmetic.full_precision(task_module(batch))
            loss = None
            if task.loss is not no_loss and (num or together is not None):
                loss = description.loss(outputs, batch, num, piece.num_global if together is not None else num)
            if task.verdict.differentiates:  # that is over now, and a graph would hold its tensors
                outputs, loss = tree.mapped(torch.Tensor.detach, (outputs, loss), opens=False)
            if num:
                tally.add(description.sums(loss, outputs, batch, num), num)
                whole.take(piece.ids, outputs, batch)
            if counts is not None:  # every batch is scored by the model that training left
                counts.put_back()
    model.train(was_training)
    return tally


def check_count(total: Tally, feed: Feed) -> None:
    if total.num != feed.num:
        raise RunFailed(f"evaluated {total.num} of {feed.num} test samples: the score would be wrong", kind="inexact")
