"""One epoch of this rank's training samples: which stand in which step, fetched as the step asks for them.

What can be known before the epoch begins is made once and put on the device once: ids, and the keys that augmentation draws from.
Inside an epoch nothing is then copied from the host, and nobody waits for the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.step import Micro, Place, StepInput
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.order import Ids, Piece, micro_pieces, sample_keys
from paceline.worker.tasks.task import Task


class Samples:
    """`pieces` are the steps of the epoch; each is fed in at most `accumulate` micro-batches."""

    def __init__(
        self, feed: Feed, task: Task, pieces: Sequence[Piece], watch: Stopwatch, device: torch.device,
        *, seed: int, epoch: int, accumulate: int,
    ) -> None:  # fmt: skip
        self._task, self._watch = task, watch
        self._cut = [micro_pieces(piece, accumulate) for piece in pieces]
        micro = [ids for step in self._cut for ids in step]
        self._pieces = pieces
        self._walk = feed.walk([Piece(ids, len(ids)) for ids in micro])
        self._firsts = list(itertools.accumulate((len(step) for step in self._cut), initial=0))
        self._starts = list(itertools.accumulate((len(ids) for ids in micro), initial=0))
        self._keys = None
        if task.augment is not None and micro:
            self._keys = torch.from_numpy(sample_keys(np.concatenate(micro), seed=seed, epoch=epoch)).to(device)

    def steps(self) -> Iterator[tuple[int, StepInput]]:
        """For each step the samples all ranks see in it, and what this rank is fed."""
        ids = self._walk.ids
        for index, piece in enumerate(self._pieces):
            first = self._firsts[index]
            place = None
            if ids is not None:
                start = self._starts[first]
                place = Place(ids, self._keys, start, self._starts[first + len(self._cut[index])] - start)
            yield piece.num_global, StepInput(self._fetch(first, self._cut[index]), place, piece.num_global)
        self._walk.end()

    def _fetch(self, first: int, micro: Sequence[Ids]) -> Iterator[Micro]:
        for index, ids in enumerate(micro):
            self._watch.switch("data")
            batch = self._walk.take(first + index)
            if self._keys is not None:
                start = self._starts[first + index]
                batch = augmented(self._task, batch, self._keys[start : start + len(ids)])
            yield batch, len(ids), index + 1 == len(micro)


def augmented(task: Task, batch: Any, keys: torch.Tensor) -> Any:
    """The batch as the task changes it. Keys are of the samples, so every world size sees the same pixels."""
    assert task.augment is not None
    changed = task.augment(batch, keys)
    if _sizes(changed) != _sizes(batch):
        raise RunFailed(
            f"{task.name}: augment(batch, keys) was given tensors of {_sizes(batch)} samples and returned {_sizes(changed)}: "
            "it may change samples, not their number or the batch's form",
            kind="task",
        )
    return changed


def _sizes(batch: Any) -> Any:
    """How many samples each tensor of a batch holds, in the batch's own form; None where something is no batch."""
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.dim() else 1
    if isinstance(batch, dict):
        return {name: _sizes(value) for name, value in batch.items()}
    if isinstance(batch, tuple | list):
        return [_sizes(value) for value in batch]
    return None
