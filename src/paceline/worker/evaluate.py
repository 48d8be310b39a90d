"""Exact evaluation: every test sample scored once over all ranks, sums and counts reduced, and the count checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from paceline.spec.axes.shardings import SHARDINGS
from paceline.worker.assemble import Parts
from paceline.worker.measure.device import settle
from paceline.worker.measure.tally import Tally
from paceline.worker.score import check_count, score
from paceline.worker.tasks.order import Piece, evaluation_pieces, training_pieces
from paceline.worker.transform.buffers import reconcile
from paceline.worker.whole_set import WholeSet


class Evaluated(NamedTuple):
    """`local`: this rank's own tally; `total`: that of all ranks. `names`: of what was added up over ranks."""

    local: Tally
    total: Tally
    names: list[str]


def evaluate(parts: Parts, names: list[str] | None = None) -> Evaluated:
    """Before it, running statistics are reconciled by the spec's rule, so that all ranks score one model.

    `names`: as the last time, so that ranks need not agree on them again.
    """
    parts.sharding.synchronize(at_once=True)
    reconcile(parts.model, parts.world, rule=parts.spec.buffers)
    cut, together = parts.sharding.share.num > 1, parts.step_parts.description.together
    whole = WholeSet(parts.task)
    whole.check(parts.test.num, parts.sharding.share.num)
    local = score(parts.task_module, parts.test, _pieces(parts), parts.arithmetic, whole, together)
    settle(parts.world.device)
    total = local.over(parts.world, names) if cut else local
    check_count(total, parts.test)
    added_up = total.names
    total.add_means(whole.scores(parts.world if cut else None))
    return Evaluated(local, total, added_up)


def set_aside(parts: Parts) -> Callable[[], None]:
    """Before an evaluation in the middle of an epoch. With what comes back every rank goes on with the bits it had: its running
    statistics, which were made one model's, are its own again, and so are parameters that ranks under local SGD had averaged before
    their time, or that forward changes in place."""
    before = parts.sharding.state()
    state = parts.state.set_aside(parameters=parts.spec.sync_every > 1 or parts.task.verdict.moves_weights)

    def put_back() -> None:
        state()
        parts.sharding.restore(before)

    return put_back


def _pieces(parts: Parts) -> list[Piece]:
    share, num, batch = parts.sharding.share, parts.test.num, parts.spec.test_batch
    every = np.arange(num, dtype=np.int64)
    if parts.step_parts.description.together is not None:  # the loss is that of whole batches, at every world size
        return training_pieces(every, batch=batch, rank=share.index, world_size=share.num)
    if SHARDINGS[parts.spec.sharding].lockstep:  # the same number of batches on every rank
        return training_pieces(every, batch=batch * share.num, rank=share.index, world_size=share.num)
    return evaluation_pieces(num, batch=batch, rank=share.index, world_size=share.num)
