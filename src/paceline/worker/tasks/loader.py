"""A torch DataLoader of a task's own: its data set and collate are taken over; its batch size and order become the defaults of settings,
because what a step sees must be the same at every world size. What cannot be taken over is refused by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
)

from paceline.base.errors import RunFailed
from paceline.spec.verdict import Note
from paceline.worker.tasks.feed import Collate


@dataclass(frozen=True, slots=True)
class Loader:
    """`asks`: what it was made with, by the names of settings."""

    data: Any
    collate: Collate
    asks: dict[str, Any] = field(default_factory=dict[str, Any])
    notes: tuple[Note, ...] = ()


def of_loader(loader: DataLoader[Any], what: str) -> Loader:
    data: Any = loader.dataset
    if loader.batch_size is None:
        raise RunFailed(
            f"{what} has a batch sampler of its own, or gives whole batches (batch_size=None): the settings cut batches (batch), so that "
            "they are the same at every world size; return a loader with a batch_size, or its data set",
            kind="data",
        )
    asks: dict[str, Any] = {"batch": loader.batch_size}
    if not isinstance(data, IterableDataset):
        data, asks["shuffle"] = _ordered(loader, what)
    notes = []
    if loader.drop_last:
        text = f"{what} has drop_last=True, which is not used: the last batch of an epoch, which may be short, is trained on too"
        notes = [("loader", text)]
    return Loader(data, loader.collate_fn, asks, tuple(notes))


def _ordered(loader: DataLoader[Any], what: str) -> tuple[Any, bool]:
    """The data set that its sampler draws from, and whether in random order."""
    sampler: Any = loader.sampler
    data: Any = loader.dataset
    if type(loader.batch_sampler) is BatchSampler:
        if type(sampler) is SequentialSampler:
            return data, False
        if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == len(data):
            return data, True
        if type(sampler) is SubsetRandomSampler:
            return Subset(data, list(sampler.indices)), True
    raise RunFailed(
        f"{what} has a sampler of its own ({type(sampler).__name__}), which decides what is trained on: samples have the order of the "
        "settings (shuffle, seed), so that they are the same at every world size; leave it out, or put what it chooses into the data set "
        "(a Subset) or the loss (weights)",
        kind="data",
    )
