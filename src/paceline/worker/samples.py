"""One epoch of this rank's training samples: which stand in which step, fetched as the step asks for them.

What can be known before the epoch begins is made once and put on the device once: ids, and the keys that augmentation draws from.
Inside an epoch nothing is then copied from the host, and nobody waits for the device.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.step.input import Micro, SamplePosition, StepInput
from paceline.worker.tasks.augmented import augmented
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.order import Ids, Piece, micro_pieces, sample_keys
from paceline.worker.tasks.task import Task


class Samples:
    """This rank's training samples, epoch by epoch; each step's come in at most `accumulate` micro-batches."""

    def __init__(
        self, feed: Feed, task: Task, watch: Stopwatch, device: torch.device, *, seed: int, accumulate: int
    ) -> None:
        self._feed, self._task, self._watch, self._device = feed, task, watch, device
        self._seed, self._accumulate = seed, accumulate

    def steps(self, pieces: Sequence[Piece], *, epoch: int) -> Iterator[StepInput]:
        """One for each piece."""
        cut = [micro_pieces(piece, self._accumulate) for piece in pieces]
        micro = [ids for step in cut for ids in step]
        walk = self._feed.walk([Piece(ids, len(ids)) for ids in micro], epoch=epoch)
        starts = list(itertools.accumulate((len(ids) for ids in micro), initial=0))
        keys = None
        if self._task.augment is not None and micro:
            keys = torch.from_numpy(sample_keys(np.concatenate(micro), seed=self._seed, epoch=epoch)).to(self._device)

        def fetch(first: int, step: Sequence[Ids]) -> Iterator[Micro]:
            for index, ids in enumerate(step):
                self._watch.switch("data")
                batch = walk.take(first + index)
                if keys is not None:
                    start = starts[first + index]
                    batch = augmented(self._task, batch, keys[start : start + len(ids)])
                yield batch, len(ids), index + 1 == len(step)

        first = 0
        for piece, step in zip(pieces, cut, strict=True):
            position = None
            if walk.ids is not None:
                position = SamplePosition(walk.ids, keys, starts[first], starts[first + len(step)] - starts[first])
            yield StepInput(fetch(first, step), position, piece.num_global)
            first += len(step)
        walk.end()
