"""From pieces (which ids) to batches (tensors): in memory by one indexed copy, a Dataset through torch's loader, a stream by counting.

Every feed has `num` and `batches(pieces)`, which yields one batch a piece and None for an empty piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from paceline.base.errors import RunFailed
from paceline.records.facts import DataKind
from paceline.worker.tasks.order import Piece

Collate = Callable[[list[Any]], Any]
Cast = Callable[[Any], Any]


class Feed(Protocol):
    kind: DataKind
    num: int

    def batches(self, pieces: Sequence[Piece]) -> Iterator[Any]: ...


@dataclass
class TensorFeed:
    """Tensors of one length: a batch is one `index_select` each, 50 times cheaper than collating samples (report A's 72 %)."""

    tensors: tuple[torch.Tensor, ...]
    kind: DataKind = "tensors"

    @property
    def num(self) -> int:
        return len(self.tensors[0])

    def batches(self, pieces: Sequence[Piece]) -> Iterator[Any]:
        device = self.tensors[0].device
        for piece in pieces:
            ids = torch.from_numpy(piece.ids).to(device)
            yield tuple(tensor.index_select(0, ids) for tensor in self.tensors) if len(ids) else None


@dataclass
class DatasetFeed:
    """A map-style Dataset through torch's DataLoader, with our ids instead of a sampler."""

    dataset: Dataset[Any]
    collate: Collate
    cast: Cast
    workers: int
    num: int
    kind: DataKind = "dataset"

    def batches(self, pieces: Sequence[Piece]) -> Iterator[Any]:
        wanted = [piece.ids.tolist() for piece in pieces if len(piece.ids)]
        # A generator of its own: the loader draws worker seeds, and must not move the stream that dropout uses.
        loader = iter(
            DataLoader(
                self.dataset, batch_sampler=wanted, collate_fn=self.collate, num_workers=self.workers,
                generator=torch.Generator(),
            )
        )  # fmt: skip
        for piece in pieces:
            yield self.cast(next(loader)) if len(piece.ids) else None


@dataclass
class StreamFeed:
    """An IterableDataset with a stated length: every rank walks the whole stream and keeps its own ids."""

    dataset: IterableDataset[Any]
    collate: Collate
    cast: Cast
    num: int
    kind: DataKind = "stream"

    def batches(self, pieces: Sequence[Piece]) -> Iterator[Any]:
        stream, position = iter(self.dataset), 0
        for piece in pieces:
            samples: list[Any] = []
            for wanted in piece.ids:
                while position <= wanted:
                    sample = self._next(stream, position)
                    position += 1
                samples.append(sample)  # pyright: ignore[reportPossiblyUnbound]
            yield self.cast(self.collate(samples)) if samples else None
        if pieces and position == self.num and next(stream, self) is not self:
            raise RunFailed(f"a data stream gave more than the {self.num} samples its __len__ states", kind="data")

    def _next(self, stream: Iterator[Any], position: int) -> Any:
        sample = next(stream, self)
        if sample is self:
            raise RunFailed(f"a data stream ended after {position} of the {self.num} samples its __len__ states", kind="data")
        return sample


def _tensor(value: Any, *, target: bool) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value
    # Class labels come as any integer type; torch's losses want int64. Inputs keep the type they have.
    return tensor.long() if target and not tensor.is_floating_point() and not tensor.is_complex() else tensor


def _length(dataset: Any, what: str) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        raise RunFailed(
            f"{what} returned a {type(dataset).__name__} without a length: define __len__, so that "
            "every sample can be counted",
            kind="data",
        ) from None


def make_feed(data: Any, *, what: str, collate: Collate | None, cast: Cast, workers: int = 0) -> Feed:
    """The feed for whatever a task's train_data() or test_data() returned."""
    if isinstance(data, tuple | list) and data and all(isinstance(item, torch.Tensor | np.ndarray) for item in data):
        tensors = tuple(_tensor(item, target=index == len(data) - 1 and index > 0) for index, item in enumerate(data))
        sizes = [len(tensor) if tensor.dim() else 0 for tensor in tensors]
        if len(set(sizes)) > 1:
            raise RunFailed(f"{what} returned arrays of different lengths: {', '.join(map(str, sizes))}", kind="data")
        feed: Feed = TensorFeed(tuple(cast(tensor) for tensor in tensors))
    elif isinstance(data, IterableDataset):
        feed = StreamFeed(data, collate or default_collate, cast, _length(data, what))
    elif hasattr(data, "__getitem__") and not isinstance(data, str | bytes | dict | torch.Tensor | np.ndarray):
        feed = DatasetFeed(data, collate or default_collate, cast, workers, _length(data, what))
    else:
        raise RunFailed(
            f"{what} returned a {type(data).__name__}; it must return (inputs, targets) as tensors or NumPy arrays, "
            "a map-style Dataset, or an IterableDataset with a length",
            kind="data",
        )
    if feed.num == 0:
        raise RunFailed(f"{what} returned no samples", kind="data")
    return feed
