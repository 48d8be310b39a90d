"""Exact evaluation: every test sample scored once over all ranks, sums and counts reduced, and the count checked."""

from __future__ import annotations

import numpy as np

from paceline.spec.axes.shardings import SHARDINGS
from paceline.worker.assemble import Parts
from paceline.worker.measure.device import settle
from paceline.worker.measure.tally import Tally
from paceline.worker.score import check_count, score
from paceline.worker.tasks.order import Piece, evaluation_pieces, training_pieces
from paceline.worker.transform.buffers import reconcile


def evaluate(parts: Parts, names: list[str] | None = None) -> tuple[Tally, Tally]:
    """Returns this rank's tally and that of all ranks. Before it, running statistics are reconciled by the spec's rule, so that all
    ranks score one model.

    `names`: of the scores, as the last time, so that ranks need not agree on them again.
    """
    parts.sharding.synchronize(at_once=True)
    reconcile(parts.model, parts.world, rule=parts.spec.buffers)
    local = score(parts.task_module, parts.test, _pieces(parts), parts.arithmetic)
    settle(parts.world.device)
    total = local.over(parts.world, names) if parts.sharding.share.num > 1 else local
    check_count(total, parts.test)
    return local, total


def _pieces(parts: Parts) -> list[Piece]:
    share, num, batch = parts.sharding.share, parts.test.num, parts.spec.test_batch
    if SHARDINGS[parts.spec.sharding].lockstep:  # the same number of batches on every rank
        every = np.arange(num, dtype=np.int64)
        return training_pieces(every, batch=batch * share.num, rank=share.index, world_size=share.num)
    return evaluation_pieces(num, batch=batch, rank=share.index, world_size=share.num)
