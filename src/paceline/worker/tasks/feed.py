"""From pieces (which ids) to batches: tensors in memory by one indexed copy, arrays in a mapped file by a thread that reads ahead. A
Dataset (`dataset_feed.py`) goes through torch's loader, a stream (`stream_feed.py`) is counted.

Every feed has `num`, `place(cast)` (called once, when the device is known) and `walk(pieces)`, which gives one batch a piece, in
their order. `epoch`: for what is drawn at random on the way.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from paceline.records.facts import DataKind
from paceline.worker.tasks.ahead import Ahead
from paceline.worker.tasks.batch_dataset import Reseed
from paceline.worker.tasks.order import Piece
from paceline.worker.tasks.tree import Form

Collate = Callable[[list[Any]], Any]
Cast = Callable[[Any], Any]
Streams = Callable[
    [int], AbstractContextManager[None]
]  # epoch -> random streams that are the global ones inside `with`


@dataclass(frozen=True, slots=True)
class Draws:
    """Where data comes by what it draws at random. `seed`: of run and rank, because augmentation that is the same in every repeat would
    not be repeated at all. `reseed`: for loader processes. `streams`: for a data stream; of the run and not of the rank."""

    seed: int = 0
    reseed: Reseed | None = None
    streams: Streams = lambda epoch: nullcontext()


class Walk(Protocol):
    """The batches of some pieces. Each is taken once and in order; only tensors in memory may be taken in any order, or skipped."""

    @property
    def ids(self) -> torch.Tensor | None:
        """The ids of all pieces in one tensor, if data and ids are on the device."""
        ...

    def take(self, index: int) -> Any: ...

    def end(self) -> None:
        """Called after the last piece: checks that a stream was not longer than stated."""
        ...


class Feed(Protocol):
    kind: DataKind

    @property
    def num(self) -> int: ...

    def place(self, cast: Cast) -> None: ...

    def walk(self, pieces: Sequence[Piece], *, epoch: int = 0) -> Walk: ...


def batches(feed: Feed, pieces: Sequence[Piece]) -> Iterator[Any]:
    """One batch a piece, None for an empty one."""
    walk = feed.walk([piece for piece in pieces if len(piece.ids)])
    index = 0
    for piece in pieces:
        yield walk.take(index) if len(piece.ids) else None
        index += len(piece.ids) > 0
    walk.end()


def as_is(value: Any) -> Any:
    return value


class InOrder:
    """A walk over what comes one after the other."""

    ids = None

    def __init__(self, coming: Iterator[Any]) -> None:
        self._coming, self._next = coming, 0

    def take(self, index: int) -> Any:
        assert index == self._next, "batches are taken one after the other"
        self._next += 1
        return next(self._coming)

    def end(self) -> None:
        if next(self._coming, None) is not None:
            raise AssertionError("more batches than were asked for")


def in_form(rows: tuple[torch.Tensor, ...], form: Form | None) -> Any:
    """Rows of each tensor as the batch that the task knows: its data may be named, or nested."""
    return rows if form is None else form.of(iter(rows))


class Indexed:
    """A walk over tensors: the ids of an epoch are put on the device once, so that no batch waits for a copy of its own."""

    def __init__(self, tensors: tuple[torch.Tensor, ...], pieces: Sequence[Piece], form: Form | None = None) -> None:
        self._tensors, self._form = tensors, form
        self._ends = list(itertools.accumulate(len(piece.ids) for piece in pieces))
        every = np.concatenate([piece.ids for piece in pieces]) if pieces else np.zeros(0, dtype=np.int64)
        self.ids = torch.from_numpy(every).to(tensors[0].device)

    def take(self, index: int) -> Any:
        ids = self.ids[self._ends[index - 1] if index else 0 : self._ends[index]]
        return in_form(tuple(tensor.index_select(0, ids) for tensor in self._tensors), self._form)

    def end(self) -> None: ...


@dataclass
class TensorFeed:
    """Tensors of one length: a batch is one `index_select` each, 50 times cheaper than collating samples (report A's 72 %). `form`: of a
    batch; None for a tuple of one part a tensor."""

    tensors: tuple[torch.Tensor, ...]
    form: Form | None = None
    kind: DataKind = "tensors"

    @property
    def num(self) -> int:
        return len(self.tensors[0])

    def place(self, cast: Cast) -> None:
        self.tensors = cast(self.tensors)

    def walk(self, pieces: Sequence[Piece], *, epoch: int = 0) -> Walk:
        return Indexed(self.tensors, pieces, self.form)


class MappedFeed:
    """Arrays that lie in a file mapped into memory (numpy.memmap), perhaps more than fits: a thread fetches some batches ahead, so
    that the disk works while the model does. A rank keeps no copy, and ranks of a machine share what the system has read."""

    kind: DataKind = "mapped"

    def __init__(self, tensors: tuple[torch.Tensor, ...], form: Form | None = None, *, pinned: bool) -> None:
        self.tensors, self.form, self._pinned, self._cast = tensors, form, pinned, as_is

    @property
    def num(self) -> int:
        return len(self.tensors[0])

    def place(self, cast: Cast) -> None:
        self._cast = cast

    def walk(self, pieces: Sequence[Piece], *, epoch: int = 0) -> Walk:
        rows = Ahead(self.tensors, [piece.ids for piece in pieces], pinned=self._pinned)
        return InOrder(in_form(self._cast(each), self.form) for each in rows)
