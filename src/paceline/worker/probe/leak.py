"""Whether the test data has samples that the training data has too: exact duplicates of what a model is given, whatever the target is.

Whole where that is cheap; of large sets, and of a Dataset whose samples take long to make, as many as there is time for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from paceline.spec.verdict import Note
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.tasks.content import (
    UNKNOWN,
    Digests,
    digest,
    parts_of,
    readable,
    row_bytes,
    row_digests,
)
from paceline.worker.tasks.dataset_feed import DatasetFeed
from paceline.worker.tasks.feed import Feed, MappedFeed, TensorFeed, in_form
from paceline.worker.tasks.stream_feed import StreamFeed
from paceline.worker.tasks.targets import inputs_of
from paceline.worker.tasks.tree import tensors_of
from paceline.worker.world.seed import kept, seed_everything

_MOST_ROWS, _MOST_BYTES = 1 << 18, 1 << 28  # of tensors, both sets together: a third of a second
_MOST_READ = 1 << 26  # of mapped files: bytes that may come from a disk
_BUDGET_S = 0.4  # for the samples of a Dataset or a stream, for each set
_CHUNK = 4096  # rows copied at a time
_HOST = torch.device("cpu")


class Looked(NamedTuple):
    """The digests of the samples that were looked at. `num`: how many samples there are, where that is known."""

    digests: Digests
    num: int | None

    @property
    def in_words(self) -> str:
        seen = len(self.digests)
        return f"all {seen}" if seen == self.num else f"{seen} of {self.num}" if self.num else f"the first {seen}"


def in_common(train: Feed, test: Feed) -> list[Note]:
    """A warning where both sets have some of the samples; nothing where they have not, or cannot be compared."""
    with kept(_HOST):
        looked_test = _look(test, train)
        looked_train = None if looked_test is None else _look(train, test)
    if looked_test is None or looked_train is None:
        return []
    num = int(np.isin(looked_test.digests, looked_train.digests).sum())
    return [("leak", _sentence(num, looked_train, looked_test))] if num else []


def _sentence(num: int, train: Looked, test: Looked) -> str:
    seen = len(test.digests)
    partly = f"; looked at {test.in_words} test and {train.in_words} training samples"
    whole = seen == test.num and len(train.digests) == train.num
    different = len(np.unique(train.digests))
    few = f" (training has only {different} different inputs)" if whole and different * 2 < len(train.digests) else ""
    return (
        f"{num} of {seen} test samples{'' if whole else ' looked at'} have inputs that training samples have too{few}, so the scores say "
        f"less about new data than they seem to{'' if whole else partly}: make one split, with a generator of a fixed seed, in both "
        "train_data() and test_data(), and give data that each of them draws a seed of its own"
    )


def _look(feed: Feed, other: Feed) -> Looked | None:
    """`other`: the feed it will be compared with. None where samples have nothing to compare."""
    tensors = _inputs(feed)
    if tensors is not None and _inputs(other) is not None:
        return _of_rows(feed.num, tensors, mapped=isinstance(feed, MappedFeed))
    if tensors is not None:
        return _of_samples((tuple(tensor[index] for tensor in tensors) for index in _mixed(feed.num)), feed.num)
    if isinstance(feed, DatasetFeed):
        return _of_samples(_fetched(feed, _places(feed, other)), feed.num)
    if isinstance(feed, StreamFeed):
        return _of_samples(iter(feed.dataset), feed.num if feed.ends else None)
    return None


def _inputs(feed: Feed) -> tuple[torch.Tensor, ...] | None:
    if not isinstance(feed, TensorFeed | MappedFeed) or not all(map(readable, feed.tensors)):
        return None
    return tuple(tensors_of(inputs_of(in_form(feed.tensors, feed.form))))


def _of_rows(num: int, tensors: tuple[torch.Tensor, ...], *, mapped: bool) -> Looked:
    most_bytes = _MOST_READ if mapped else _MOST_BYTES
    most = max(1, min(_MOST_ROWS, most_bytes // max(1, row_bytes(tensors))) // 2)
    ids = np.arange(num, dtype=np.int64) if num <= most else np.sort(_mixed(num)[:most])
    chunks = [row_digests(tensors, ids[start : start + _CHUNK]) for start in range(0, len(ids), _CHUNK)]
    return Looked(np.concatenate(chunks), num)


def _mixed(num: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.PCG64(0)).permutation(num).astype(np.int64)


def _places(feed: DatasetFeed, other: Feed) -> NDArray[np.int64]:
    """In which order to look. Of two subsets those places come first that both have an index in common for: what a look that
    must be short is for."""
    order = _mixed(feed.num)
    own, others = _indices(feed), _indices(other)
    if own is None or others is None or len(own) != feed.num:
        return order
    shared = np.isin(own[order], others)
    return np.concatenate([order[shared], order[~shared]])


def _indices(feed: Feed) -> NDArray[np.int64] | None:
    if not isinstance(feed, DatasetFeed) or type(feed.dataset) is not torch.utils.data.Subset:
        return None
    return np.asarray(feed.dataset.indices, dtype=np.int64)


def _fetched(feed: DatasetFeed, order: NDArray[np.int64]) -> Iterator[Any]:
    for index in order:
        seed_everything(0)  # what it draws at random is the same for a sample that is in both sets
        yield feed.dataset[int(index)]


def _of_samples(samples: Iterator[Any], num: int | None) -> Looked | None:
    """As many as there is time for. What a sample raises is said where it is trained on, not here."""
    watch, found = Stopwatch("look"), list[int]()
    with contextlib.suppress(Exception):
        for sample in samples:
            parts = list(parts_of(inputs_of(sample)))
            if UNKNOWN in parts or not parts:
                return None
            found.append(digest(parts))
            if watch.elapsed() > _BUDGET_S or len(found) == _MOST_ROWS:
                break
    return Looked(np.array(found, dtype=np.uint64), num) if found else None
