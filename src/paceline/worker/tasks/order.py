"""Which samples a step sees: the same ids in the same order at every world size, each exactly once an epoch. Pure index work."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paceline.spec.topology import share

Ids = NDArray[np.int64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Piece(NamedTuple):
    """One rank's part of one batch; `num_global` is what all ranks together see in it. A tuple: an epoch has thousands of them."""

    ids: Ids
    num_global: int


def epoch_order(num: int, *, seed: int, epoch: int, shuffle: bool) -> Ids:
    """NumPy's generator, not torch's: the order must not depend on the torch version or the device."""
    if not shuffle:
        return np.arange(num, dtype=np.int64)
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(num).astype(np.int64)


def training_pieces(order: Ids, *, batch: int, rank: int, world_size: int) -> list[Piece]:
    """Global batches cut from the order, each split over ranks; the last may be short, and a rank may get nothing of it."""
    low, high = share(batch, rank=rank, world_size=world_size)
    short = len(order) % batch
    end = len(order) - short
    pieces = [Piece(order[start + low : start + high], batch) for start in range(0, end, batch)]
    if short:
        low, high = share(short, rank=rank, world_size=world_size)
        pieces.append(Piece(order[end + low : end + high], short))
    return pieces


def evaluation_pieces(num: int, *, batch: int, rank: int, world_size: int) -> list[Piece]:
    """The rank's contiguous share of the test set in batches of at most `batch`; no padding, possibly nothing."""
    low, high = share(num, rank=rank, world_size=world_size)
    ids = np.arange(low, high, dtype=np.int64)
    return [Piece(ids[start : start + batch], len(ids)) for start in range(0, len(ids), batch)]


def sample_keys(ids: Ids, *, seed: int, epoch: int) -> Ids:
    """A random number for each sample, of (seed, epoch, id) alone: what is drawn from it is the same at every world size.

    splitmix64's mixing, twice, so that neighbouring ids and epochs have nothing in common; 63 bits, never negative.
    """
    with np.errstate(over="ignore"):
        key = _mix(ids.astype(np.uint64) + _mix(np.uint64(seed) * _GOLDEN + np.uint64(epoch)))
    return (key >> np.uint64(1)).astype(np.int64)


def _mix(value: Any) -> Any:
    value = value + _GOLDEN
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def micro_pieces(piece: Piece, num: int) -> list[Ids]:
    """A rank's part of a batch in at most `num` nearly equal pieces. No piece is empty; an empty part gives no pieces.

    >>> [ids.tolist() for ids in micro_pieces(Piece(np.arange(5), 9), 2)]
    [[0, 1, 2], [3, 4]]
    """
    if num == 1:
        return [piece.ids] if len(piece.ids) else []
    return [ids for ids in np.array_split(piece.ids, num) if len(ids)]
