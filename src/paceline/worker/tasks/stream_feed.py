"""An IterableDataset as a feed: every rank walks the whole stream and keeps its own ids."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import IterableDataset

from paceline.base.errors import RunFailed
from paceline.records.facts import DataKind
from paceline.worker.tasks.content import digest
from paceline.worker.tasks.feed import Cast, Collate, InOrder, Streams, Walk, as_is
from paceline.worker.tasks.order import Piece

_MOST_LOOKED_AT = 1 << 17  # samples of the first pass, about a second
ENDLESS = 1 << 62  # samples of a stream that nobody has asked for a number of


@dataclass
class StreamFeed:
    """What the stream draws at random is drawn from streams of its own: the same on every rank, and again in a resumed run. `ends`: it
    has a length; else `num` is how many samples the run takes. `first_pass`: a digest of each sample that was seen in the first walk,
    until somebody has asked for them."""

    dataset: IterableDataset[Any]
    collate: Collate
    num: int
    streams: Streams
    ends: bool = True
    kind: DataKind = "stream"
    cast: Cast = as_is
    first_pass: array[int] | None = field(default_factory=lambda: array("Q"))
    _walks: int = 0

    def place(self, cast: Cast) -> None:
        self.cast = cast

    def walk(self, pieces: Sequence[Piece], *, epoch: int = 0) -> Walk:
        self._walks += 1
        return InOrder(self._batches(pieces, self.streams(epoch), looks=self._walks == 1))

    def _batches(self, pieces: Sequence[Piece], streams: AbstractContextManager[None], *, looks: bool) -> Iterator[Any]:
        with streams:
            stream, position = iter(self.dataset), 0
        for piece in pieces:
            samples: list[Any] = []
            with streams:
                for wanted in piece.ids:
                    for skipped in range(position, wanted):
                        self._next(stream, skipped, looks=looks)
                    samples.append(self._next(stream, int(wanted), looks=looks))
                    position = int(wanted) + 1
                batch = self.collate(samples)
            yield self.cast(batch)
        if self.ends and position == self.num and next(stream, self) is not self:
            raise RunFailed(f"a data stream gave more than the {self.num} samples its __len__ states", kind="data")

    def _next(self, stream: Iterator[Any], position: int, *, looks: bool) -> Any:
        sample = next(stream, self)
        if sample is self:
            raise RunFailed(self._too_short(position), kind="data")
        if looks and self.first_pass is not None and position < _MOST_LOOKED_AT:
            self.first_pass.append(digest(sample))
        return sample

    def _too_short(self, num: int) -> str:
        if self.ends:
            return f"a data stream ended after {num} of the {self.num} samples its __len__ states"
        return (
            f"a data stream without a length ended after {num} samples, and the run's steps need {self.num}: give it a __len__, so that it "
            "is begun again for each epoch, or ask for fewer steps"
        )
