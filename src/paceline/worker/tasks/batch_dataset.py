"""A map-style Dataset as torch's DataLoader asks for it here: batch by batch, each with the seed of what is drawn at random in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Reseed = Callable[[int], None]
SeededIds = tuple[int, list[int]]


class WantedBatches:
    """The loader's batch sampler: it yields what the current walk asks for."""

    def __init__(self) -> None:
        self.batches: list[SeededIds] = []

    def __iter__(self) -> Iterator[SeededIds]:
        return iter(self.batches)


class BatchDataset:
    """`reseed`: in a loader process, the random streams are seeded anew for every batch. What is drawn then depends on run, epoch and
    batch, and not on how many batches the process has made before: a resumed run draws the same. None in the rank's own process, whose
    streams are a part of the run's state."""

    def __init__(self, dataset: Any, reseed: Reseed | None) -> None:
        self._dataset, self._reseed = dataset, reseed

    def __getitems__(self, wanted: SeededIds) -> list[Any]:
        """torch's fetcher calls it with what the batch sampler yields."""
        seed, ids = wanted
        if self._reseed is not None:
            self._reseed(seed)
        many = getattr(self._dataset, "__getitems__", None)
        return many(ids) if many else [self._dataset[index] for index in ids]
