"""Any world size sees the same ids in the same order, each once: for all sizes, not for the ones we thought of."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline.worker.tasks.order import epoch_order, evaluation_pieces, training_pieces

NUM, BATCH, WORLD = st.integers(1, 300), st.integers(1, 64), st.integers(1, 9)


@given(NUM, BATCH, WORLD, st.booleans())
def test_ranks_together_see_the_one_process_batches(num: int, batch: int, world_size: int, shuffle: bool) -> None:
    order = epoch_order(num, seed=1, epoch=2, shuffle=shuffle)
    alone = training_pieces(order, batch=batch, rank=0, world_size=1)
    shared = [training_pieces(order, batch=batch, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert {len(pieces) for pieces in shared} == {len(alone)}, "every rank takes the same number of steps"
    for step, piece in enumerate(alone):
        together = np.concatenate([pieces[step].ids for pieces in shared])
        assert together.tolist() == piece.ids.tolist()
        assert {pieces[step].num_global for pieces in shared} == {len(piece.ids)}
    assert sorted(np.concatenate([piece.ids for piece in alone]).tolist()) == list(range(num))


@given(NUM, BATCH, WORLD)
def test_every_test_sample_is_on_one_rank(num: int, batch: int, world_size: int) -> None:
    seen = [
        sample
        for rank in range(world_size)
        for piece in evaluation_pieces(num, batch=batch, rank=rank, world_size=world_size)
        for sample in piece.ids.tolist()
    ]
    assert sorted(seen) == list(range(num))


def test_order_is_pinned() -> None:
    """The same on every machine and torch version: a record's sample order can be made again years later."""
    assert epoch_order(8, seed=123, epoch=0, shuffle=True).tolist() == [0, 6, 4, 2, 7, 3, 1, 5]
    assert epoch_order(8, seed=123, epoch=1, shuffle=True).tolist() != [0, 6, 4, 2, 7, 3, 1, 5]
    assert epoch_order(4, seed=9, epoch=3, shuffle=False).tolist() == [0, 1, 2, 3]
