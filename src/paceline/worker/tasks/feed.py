"""From pieces (which ids) to batches (tensors): in memory by one indexed copy, from a mapped file by a thread that reads ahead, a
Dataset through torch's loader, a stream by counting.

Every feed has `num`, `place(cast)` (called once, when the device is known) and `walk(pieces)`, which gives one batch a piece, in
their order. `epoch`: for what is drawn at random on the way.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, default_collate

from paceline.base.errors import RunFailed
from paceline.base.lifeline import die_with_parent
from paceline.records.facts import DataKind
from paceline.worker.tasks.ahead import Ahead, is_mapped
from paceline.worker.tasks.batch_dataset import BatchDataset, Reseed, WantedBatches
from paceline.worker.tasks.order import Piece, sample_keys

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


def _as_is(value: Any) -> Any:
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


class Indexed:
    """A walk over tensors: the ids of an epoch are put on the device once, so that no batch waits for a copy of its own."""

    def __init__(self, tensors: tuple[torch.Tensor, ...], pieces: Sequence[Piece]) -> None:
        self._tensors = tensors
        self._ends = list(itertools.accumulate(len(piece.ids) for piece in pieces))
        every = np.concatenate([piece.ids for piece in pieces]) if pieces else np.zeros(0, dtype=np.int64)
        self.ids = torch.from_numpy(every).to(tensors[0].device)

    def take(self, index: int) -> Any:
        ids = self.ids[self._ends[index - 1] if index else 0 : self._ends[index]]
        return tuple(tensor.index_select(0, ids) for tensor in self._tensors)

    def end(self) -> None: ...


@dataclass
class TensorFeed:
    """Tensors of one length: a batch is one `index_select` each, 50 times cheaper than collating samples (report A's 72 %)."""

    tensors: tuple[torch.Tensor, ...]
    kind: DataKind = "tensors"

    @property
    def num(self) -> int:
        return len(self.tensors[0])

    def place(self, cast: Cast) -> None:
        self.tensors = cast(self.tensors)

    def walk(self, pieces: Sequence[Piece], *, epoch: int = 0) -> Walk:
        return Indexed(self.tensors, pieces)


class MappedFeed:
    """Arrays that lie in a file mapped into memory (numpy.memmap), perhaps more than fits: a thread fetches some batches ahead, so
    that the disk works while the model does. A rank keeps no copy, and ranks of a machine share what the system has read."""

    kind: DataKind = "mapped"

    def __init__(self, tensors: tuple[torch.Tensor, ...], *, pinned: bool) -> None:
        self.tensors, self._pinned, self._cast = tensors, pinned, _as_is

    @property
    def num(self) -> int:
        return len(self.tensors[0])

    def place(self, cast: Cast) -> None:
        self._cast = cast

    def walk(self, pieces: Sequence[Piece], *, epoch: int = 0) -> Walk:
        return InOrder(map(self._cast, Ahead(self.tensors, [piece.ids for piece in pieces], pinned=self._pinned)))


def _loader_process(_: int) -> None:
    """A loader process dies with its rank, and takes no more than one core."""
    torch.set_num_threads(1)
    die_with_parent()


class DatasetFeed:
    """A map-style Dataset through torch's DataLoader, with our ids instead of a sampler.

    Loader processes are forked here, once, before the process group exists: forked later they inherit the locks of
    gloo's threads without the threads, and now and then one hangs for ever (seen).
    """

    kind: DataKind = "dataset"

    def __init__(self, dataset: Any, collate: Collate, workers: int, draws: Draws, *, num: int, pinned: bool) -> None:
        """`pinned`: batches are put into pinned memory, from which a GPU copies them while it computes the batch before."""
        self.num, self._cast, self._wanted, self._seed = num, _as_is, WantedBatches(), draws.seed
        self.dataset, self.collate = dataset, collate
        self._loader = DataLoader(
            BatchDataset(dataset, draws.reseed if workers else None), batch_sampler=self._wanted,  # pyright: ignore[reportArgumentType]
            collate_fn=collate, num_workers=workers, persistent_workers=workers > 0, pin_memory=pinned,
            worker_init_fn=_loader_process if workers else None,
            # A generator of its own: the loader draws from it, and must not move the stream that dropout uses.
            generator=torch.Generator().manual_seed(draws.seed),
        )  # fmt: skip
        if workers:
            iter(self._loader)

    def place(self, cast: Cast) -> None:
        self._cast = cast

    def walk(self, pieces: Sequence[Piece], *, epoch: int = 0) -> Walk:
        first = np.array([piece.ids[0] for piece in pieces], dtype=np.int64)
        seeds = sample_keys(first, seed=self._seed, epoch=epoch) % 2**32
        self._wanted.batches = [(int(seed), piece.ids.tolist()) for seed, piece in zip(seeds, pieces, strict=True)]
        return InOrder(map(self._cast, self._loader))


@dataclass
class StreamFeed:
    """An IterableDataset with a stated length: every rank walks the whole stream and keeps its own ids. What the stream
    draws at random is drawn from streams of its own: the same on every rank, and again in a resumed run."""

    dataset: IterableDataset[Any]
    collate: Collate
    num: int
    streams: Streams
    kind: DataKind = "stream"
    cast: Cast = _as_is

    def place(self, cast: Cast) -> None:
        self.cast = cast

    def walk(self, pieces: Sequence[Piece], *, epoch: int = 0) -> Walk:
        return InOrder(self._batches(pieces, self.streams(epoch)))

    def _batches(self, pieces: Sequence[Piece], streams: AbstractContextManager[None]) -> Iterator[Any]:
        with streams:
            stream, position = iter(self.dataset), 0
        for piece in pieces:
            samples: list[Any] = []
            with streams:
                for wanted in piece.ids:
                    for skipped in range(position, wanted):
                        self._next(stream, skipped)
                    samples.append(self._next(stream, int(wanted)))
                    position = int(wanted) + 1
                batch = self.collate(samples)
            yield self.cast(batch)
        if position == self.num and next(stream, self) is not self:
            raise RunFailed(f"a data stream gave more than the {self.num} samples its __len__ states", kind="data")

    def _next(self, stream: Iterator[Any], position: int) -> Any:
        sample = next(stream, self)
        if sample is self:
            raise RunFailed(
                f"a data stream ended after {position} of the {self.num} samples its __len__ states", kind="data"
            )
        return sample


def _tensor(value: Any, *, target: bool) -> torch.Tensor:
    tensor = _from_numpy(value) if isinstance(value, np.ndarray) else value
    # Class labels come as any integer type; torch's losses want int64. Inputs keep the type they have.
    return tensor.long() if target and not tensor.is_floating_point() and not tensor.is_complex() else tensor


def _from_numpy(array: np.ndarray[Any, Any]) -> torch.Tensor:
    with warnings.catch_warnings():  # a file mapped for reading alone: nothing here writes into a data set
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(array))


def _length(dataset: Any, what: str) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        raise RunFailed(
            f"{what} returned a {type(dataset).__name__} without a length: define __len__, so that "
            "every sample can be counted",
            kind="data",
        ) from None


def make_feed(
    data: Any, *, what: str, collate: Collate | None, workers: int = 0, draws: Draws | None = None, pinned: bool = False
) -> Feed:
    """The feed for whatever a task's train_data() or test_data() returned."""
    draws = draws or Draws()
    if isinstance(data, tuple | list) and data and all(isinstance(item, torch.Tensor | np.ndarray) for item in data):
        tensors = tuple(_tensor(item, target=index == len(data) - 1 and index > 0) for index, item in enumerate(data))
        sizes = [len(tensor) if tensor.dim() else 0 for tensor in tensors]
        if len(set(sizes)) > 1:
            raise RunFailed(f"{what} returned arrays of different lengths: {', '.join(map(str, sizes))}", kind="data")
        feed: Feed = (
            MappedFeed(tensors, pinned=pinned) if any(is_mapped(item) for item in data) else TensorFeed(tensors)
        )
    elif isinstance(data, IterableDataset):
        feed = StreamFeed(data, collate or default_collate, _length(data, what), draws.streams)
    elif hasattr(data, "__getitem__") and not isinstance(data, str | bytes | dict | torch.Tensor | np.ndarray):
        num = _length(data, what)
        feed = DatasetFeed(data, collate or default_collate, workers, draws, num=num, pinned=pinned)
    else:
        raise RunFailed(
            f"{what} returned a {type(data).__name__}; it must return (inputs, targets) as tensors or NumPy arrays, "
            "a map-style Dataset, or an IterableDataset with a length",
            kind="data",
        )
    if feed.num == 0:
        raise RunFailed(f"{what} returned no samples", kind="data")
    return feed
