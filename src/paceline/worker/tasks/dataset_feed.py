"""A map-style Dataset as a feed: torch's DataLoader, asked for our ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from paceline.base.lifeline import die_with_parent
from paceline.records.facts import DataKind
from paceline.worker.tasks.batch_dataset import BatchDataset, WantedBatches
from paceline.worker.tasks.feed import Cast, Collate, Draws, InOrder, Walk, as_is
from paceline.worker.tasks.order import Piece, sample_keys


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
        self.num, self._cast, self._wanted, self._seed = num, as_is, WantedBatches(), draws.seed
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
