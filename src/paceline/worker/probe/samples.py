"""The samples that the probe looks at, fetched once: a batch of all of them, and batches of parts. Rare classes are among them, because
what treats classes differently would look like a mean where only one is seen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from paceline.worker.tasks.augmented import augmented
from paceline.worker.tasks.content import parts_of, readable
from paceline.worker.tasks.dataset_feed import DatasetFeed
from paceline.worker.tasks.feed import Feed, TensorFeed, in_form
from paceline.worker.tasks.order import Piece, sample_keys
from paceline.worker.tasks.stream_feed import StreamFeed
from paceline.worker.tasks.targets import targets_of
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.tree import leaves_of
from paceline.worker.world.seed import random_states

MOST = 48
_MOST_CLASSES = 24
_MOST_ALONE = 8
_MOST_SEARCHED = 1 << 22  # numbers of a part, for its extremes
_HOST = torch.device("cpu")
GENERATORS = ("torch", "python", "numpy")


class Samples:
    """`batch(places)` is the batch of these of the chosen samples, in one number format."""

    def __init__(self, feed: Feed, task: Task, *, most: int) -> None:
        self._feed, self._task, self._cast = feed, task, _as_is
        self._ids = _chosen(feed, most)
        self._samples: list[Any] | None = None
        self.drew = False  # a Dataset's samples are made with random numbers
        if isinstance(feed, DatasetFeed):
            before = host_states()
            self._samples = [feed.dataset[int(index)] for index in self._ids]
            again = feed.dataset[int(self._ids[0])]  # made with a generator of its own, it is another one now
            self.drew = host_states() != before or list(parts_of(again)) != list(parts_of(self._samples[0]))
        elif isinstance(feed, StreamFeed):
            stream = iter(feed.dataset)
            self._samples = [sample for _, sample in zip(range(most), stream, strict=False)]
            self._ids = np.arange(len(self._samples), dtype=np.int64)

    def cast(self, cast: Callable[[Any], Any]) -> Samples:
        """The same, fetched once, in another format."""
        same = copy.copy(self)
        same._cast = cast
        return same

    @property
    def num(self) -> int:
        return len(self._ids)

    @property
    def ragged(self) -> bool:
        """Whether single samples make batches of different shapes, so that larger ones are filled up to the longest."""
        seen = {
            str([list(leaf.shape[1:]) for leaf in leaves_of(self.batch([place])) if isinstance(leaf, torch.Tensor)])
            for place in np.unique(np.linspace(0, self.num - 1, num=_MOST_ALONE, dtype=np.int64))
        }
        return len(seen) > 1

    def batch(self, places: Sequence[int], *, training: bool = False) -> Any:
        """`training`: as `augment` makes it."""
        ids = self._ids[list(places)]
        if self._samples is not None:
            assert isinstance(self._feed, DatasetFeed | StreamFeed)
            batch = self._feed.collate([self._samples[place] for place in places])
        else:
            batch = self._feed.walk([Piece(ids, len(ids))]).take(0)
        batch = self._cast(batch)
        if self._task.augment is None or not training:
            return batch
        return augmented(self._task, batch, torch.from_numpy(sample_keys(ids, seed=0, epoch=0)))


def host_states() -> tuple[bytes, ...]:
    """Of the global generators: another one after somebody has drawn from one of them."""
    tensors, _ = random_states(_HOST)
    return tuple(tensors[name].numpy().tobytes() for name in GENERATORS)


def _as_is(batch: Any) -> Any:
    return batch


def _chosen(feed: Feed, most: int) -> np.ndarray[Any, Any]:
    """A sample of every class, as far as they are known, those with the most extreme numbers, and others from all over the data."""
    most = min(most, feed.num)
    spread = np.linspace(0, feed.num - 1, num=most, dtype=np.int64)
    if not isinstance(feed, TensorFeed):
        return spread
    target = targets_of(in_form(feed.tensors, feed.form))
    classes = _classes(target, most // 2) if isinstance(target, torch.Tensor) else []
    first = list(dict.fromkeys([*classes, *_extremes(feed.tensors)]))[: most * 3 // 4]
    others = [index for index in spread.tolist() if index not in set(first)]
    # mixed, so that each part has classes of its own and common ones
    both = np.array([*first, *others][:most], dtype=np.int64)
    return np.random.Generator(np.random.PCG64(0)).permutation(both)


def _classes(target: torch.Tensor, most: int) -> list[int]:
    if target.is_floating_point() or target.is_complex() or target.dim() != 1:
        return []
    _, first = np.unique(target.numpy(), return_index=True)
    return first[: min(_MOST_CLASSES, most)].tolist()


def _extremes(tensors: Sequence[torch.Tensor]) -> list[int]:
    """The samples with the smallest and the largest numbers, the most zeros and the fewest, and one with a missing value: a mask, a weight
    or a padding that only a few samples have. Of parts that are searched at once: images are not."""
    found: list[int] = []
    for tensor in tensors:
        if not tensor.dim() or not 0 < tensor.numel() <= _MOST_SEARCHED or tensor.is_complex() or not readable(tensor):
            continue
        rows = tensor.detach().reshape(len(tensor), -1).double()
        if (lacking := (~rows.isfinite()).any(dim=1)).any():
            found.append(int(lacking.to(torch.uint8).argmax()))
        for figure in (rows.nan_to_num().sum(dim=1), (rows == 0).sum(dim=1)):
            found += [int(figure.argmin()), int(figure.argmax())]
    return found
