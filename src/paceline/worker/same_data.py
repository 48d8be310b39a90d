"""Whether all ranks were given the same samples: each digests some of its own before it joins the world, and all compare them before they
train. Different samples under the same ids would be trained on twice, or never, and no figure would show it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from paceline.base.errors import RunFailed
from paceline.spec.inputs import SAYS_NOTHING, Inputs, differ
from paceline.spec.verdict import OTHER_DATA, Note
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.tasks.content import UNKNOWN, digest, parts_of, readable, row_bytes
from paceline.worker.tasks.dataset_feed import DatasetFeed
from paceline.worker.tasks.feed import Feed, MappedFeed, TensorFeed
from paceline.worker.tasks.stream_feed import StreamFeed
from paceline.worker.transform.side_effects import Kept
from paceline.worker.world.collectives import agree, broadcast_json
from paceline.worker.world.join import World
from paceline.worker.world.seed import kept, seed_host

_WHOLE_BYTES = 1 << 23  # of tensors: as many bytes of a set, or of rows from all over it
_MOST_ROWS = 256  # of a mapped file, which may have to be read from a disk
_MOST_SAMPLES = 64  # of a Dataset
_BUDGET_S = 0.3  # for them; one sample is always looked at
_HOST = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Look:
    """Of each sample that was looked at, in order, a digest of each part. Tensors count as one sample."""

    samples: list[list[str]]

    def differs(self, other: Look) -> bool:
        """As far as both looked; one may have had less time."""
        return differ(self.samples, other.samples)


def look(feed: Feed, *, most: int = _MOST_SAMPLES) -> Look:
    """Of a Dataset the first `most` of places that are always the same. The random streams of this process stay as they are. What a
    sample raises is said where it is trained on, not here."""
    if isinstance(feed, TensorFeed | MappedFeed):
        return Look([[_of_tensor(tensor, mapped=isinstance(feed, MappedFeed)) for tensor in feed.tensors]])
    if isinstance(feed, DatasetFeed):
        counted = Kept(
            None, None, feed.dataset
        )  # a Dataset may count what it was asked for, or have a generator of its own
        try:
            with kept(_HOST), contextlib.suppress(Exception):
                return Look(_of_dataset(feed, most))
        finally:
            counted.put_back()
    return Look([])


def _of_tensor(tensor: torch.Tensor, *, mapped: bool) -> str:
    if not readable(tensor):
        return SAYS_NOTHING
    num = max(1, _WHOLE_BYTES // max(1, row_bytes((tensor,))))
    num = min(num, _MOST_ROWS) if mapped else num
    if len(tensor) > num:
        tensor = tensor.index_select(0, torch.from_numpy(_spread(len(tensor), num)))
    return f"{digest(tensor):016x}"


def _spread(num: int, most: int) -> np.ndarray[Any, Any]:
    """Places from all over the data, the first of them too: in an order that a short look can break off."""
    if num <= most:
        return np.arange(num, dtype=np.int64)
    return np.random.Generator(np.random.PCG64(0)).choice(num, size=most, replace=False).astype(np.int64)


def _of_dataset(feed: DatasetFeed, most: int) -> list[list[str]]:
    watch, found = Stopwatch("look"), list[list[str]]()
    first, *rest = (int(place) for place in _spread(feed.num, _MOST_SAMPLES))
    found.append(_digests(feed, first))
    again = _digests(feed, first)  # a part that an unseeded generator changes is another one on every rank, rightly
    for place in rest[: most - 1]:
        if watch.elapsed() > _BUDGET_S:
            break
        found.append(_digests(feed, place))
    unsteady = {index for index, (a, b) in enumerate(zip(found[0], again, strict=False)) if a != b}
    if len(again) != len(found[0]):
        return []
    return [[SAYS_NOTHING if index in unsteady else part for index, part in enumerate(parts)] for parts in found]


def _digests(feed: DatasetFeed, place: int) -> list[str]:
    seed_host(0)  # what a sample draws from the global streams is the same on every rank
    return [SAYS_NOTHING if part == UNKNOWN else part.hex() for part in parts_of(feed.dataset[place])]


def same_pass(feed: Feed, split: str, world: World, *, name: str) -> str | None:
    """All ranks together, after a walk through a stream: whether it gave all of them the same samples at the same places. Comes back:
    what a reader must know of samples that came twice. Of the first walk; then there is nothing to tell."""
    if not isinstance(feed, StreamFeed) or feed.first_pass is None:
        return None
    seen = np.frombuffer(feed.first_pass, dtype=np.uint64)
    feed.first_pass = None
    common, longest = agree(len(seen), world)
    half = digest(seen[:common].tobytes()) >> 2  # what a collective of whole numbers can carry
    smallest, largest = agree(half, world)
    if smallest != largest:
        raise RunFailed(
            f"{name}: {split}_data() is a stream that gave the ranks other samples at the same places, so some were used twice and others "
            "never: shuffle with torch's or NumPy's global generator, which is the same on every rank, or with one of a fixed seed",
            kind="data",
        )
    _, twice = agree(len(seen) - len(np.unique(seen)), world)
    if not twice:
        return None
    return f"{split}_data() is a stream that gave {longest - twice} different samples and {twice} of them again, in a pass of {longest}"


def other_samples(found: Mapping[str, tuple[int, Look]], inputs: Inputs) -> list[Note]:
    """`found`: of each split how many samples there are, and a look at them. A warning where they are not those of `inputs`."""
    return [
        (
            OTHER_DATA,
            f"{split}_data() gave other samples in this run than when the task was looked into: it draws without a fixed seed, or what it "
            "reads has changed; so what was found out then may not hold, and this run cannot be repeated",
        )
        for split, (num, seen) in found.items()
        if num != inputs.samples[split][0] or differ(seen.samples, inputs.samples[split][1])
    ]


def same_samples(looks: dict[str, Look] | None, world: World, *, name: str) -> None:
    """All ranks together. `looks`: by split, of the data this rank has loaded; None where another rank of its machine did.
    Rank 0 always has some."""
    if world.size == 1:
        return
    told = broadcast_json({split: one.samples for split, one in (looks or {}).items()}, world)
    assert isinstance(told, dict)
    for split, samples in told.items():
        differs = looks is not None and looks[split].differs(Look(samples))
        first, _ = agree(world.rank if differs else world.size, world)
        if first < world.size:
            raise RunFailed(
                f"{name}: {split}_data() gave other samples on rank {first} than on rank 0, so ranks would train on, or score, different "
                "samples under the same ids: split and shuffle with a generator of a fixed seed, and load the same files on every machine",
                kind="data",
            )
