"""Checks before training that every rank can take part in every step, for the ways of sharding that wait for all ranks.

It depends on the number of samples, which only the rank knows for sure. So it is checked here, and not by a rule.
"""

from __future__ import annotations

import numpy as np

from paceline.base.errors import RunFailed
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.run import Spec
from paceline.spec.steps import steps_per_epoch
from paceline.worker.tasks.order import Piece, micro_pieces, training_pieces
from paceline.worker.world.join import World

_WRAPPER = "wrap=accelerate"  # which wraps the model in DDP


def check_equal_steps(num: int, spec: Spec, world: World, *, waits_as: str | None = None) -> None:
    """`num`: training samples. `waits_as`: what of the task meets the other ranks inside a step. Only batches that will
    be trained on count: `steps` may end a run before the short last one."""
    way = SHARDINGS[spec.sharding]
    asked, cut_as = (_WRAPPER, "DDP") if spec.wrap == "accelerate" else (f"sharding={spec.sharding}", way.waits_as)
    if world.size > 1 and cut_as is not None:
        a_sample_for_every_rank(num, spec, world, asked=asked, waits_as=cut_as)
        if way.lockstep:
            _equal_micro_batches(num, spec, world, asked=asked)
    if waits_as is not None and world.size > 1 and SHARDINGS[spec.sharding].cuts_samples:
        a_sample_for_every_rank(num, spec, world, asked=f"on={spec.on}", waits_as=waits_as)
    if spec.buffers == "sync" and world.size > 1:
        a_sample_for_every_rank(num, spec, world, asked="buffers=sync", waits_as="a synchronised BatchNorm")
    if spec.sync_every > 1:
        _time_to_drift(num, spec)


def a_sample_for_every_rank(num: int, spec: Spec, world: World, *, asked: str, waits_as: str) -> None:
    """A rank without a sample has no backward pass, or would not reach the collectives inside the model."""
    empty = next((piece for piece in _pieces(num, spec, world, rank=world.size - 1) if not len(piece.ids)), None)
    if empty is not None:
        raise RunFailed(
            f"{asked}: the last batch of an epoch has {empty.num_global} of the {num} samples, too few for {world.size} "
            f"ranks, and {waits_as} cannot train where a rank has none: choose a batch whose last one has a sample "
            f"for every rank, or {asked.partition('=')[0]}=none",
            kind="mismatch",
        )


def _equal_micro_batches(num: int, spec: Spec, world: World, *, asked: str) -> None:
    """There are collectives inside the model, so each rank must call it equally often."""
    first, last = (_pieces(num, spec, world, rank=rank) for rank in (0, world.size - 1))  # most and fewest samples
    for most, fewest in zip(first, last, strict=True):
        here, there = (len(micro_pieces(piece, spec.accumulate)) for piece in (most, fewest))
        if here != there:
            raise RunFailed(
                f"{asked} accumulate={spec.accumulate}: a batch of {most.num_global} of the {num} samples makes {here} micro-batches "
                f"on rank 0 and {there} on rank {world.size - 1}, but the ranks meet inside the model: choose a batch whose "
                f"last one has {spec.accumulate} samples for every rank, or a smaller accumulate",
                kind="mismatch",
            )


def _time_to_drift(num: int, spec: Spec) -> None:
    """Ranks are averaged before every evaluation anyway: a `sync_every` longer than an epoch would never be reached."""
    each = steps_per_epoch(spec, num)
    longest = each if spec.steps is None else min(each, spec.steps)
    if longest < spec.sync_every:
        raise RunFailed(
            f"sync_every={spec.sync_every}: there are only {longest} steps before an evaluation, where the ranks become one model "
            f"anyway: use sync_every={longest} or less, or more data",
            kind="mismatch",
        )


def _pieces(num: int, spec: Spec, world: World, *, rank: int) -> list[Piece]:
    return training_pieces(np.arange(num), batch=spec.batch, rank=rank, world_size=world.size)[: spec.steps]
