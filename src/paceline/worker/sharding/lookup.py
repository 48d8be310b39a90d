"""A table that is cut over ranks: rows are fetched for this rank's ids, and their gradients brought back to where the rows lie.

Every rank says its ids to all; who has a row (or a slice of it) sends it to who asked; the gradient goes the same way back. So a
gradient is complete where it arrives, and no rank ever holds more of a table, or of its gradient, than its own part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.sharding.sharded_init import PIECE, Cut
from paceline.worker.world.collectives import all_to_all, broadcast, gather
from paceline.worker.world.join import World


@dataclass(frozen=True, slots=True)
class Exchange:
    """What tables talk through."""

    world: World
    watch: Stopwatch

    def all_to_all(self, pieces: list[torch.Tensor], shapes: list[tuple[int, int]]) -> list[torch.Tensor]:
        with self.watch.aside():
            return all_to_all(pieces, shapes, self.world)

    def everybodys(self, ids: torch.Tensor, table: CutTable) -> list[torch.Tensor]:
        """The ids of every rank. Their number stands before them; a rank that has more than there is room for says only that, and
        all come again with room for it: one message, but for the first time."""
        while True:
            room = table.room[table.training]
            message = ids.new_zeros(room + 1)
            message[0] = len(ids)
            if len(ids) <= room:
                message[1 : len(ids) + 1] = ids
            with self.watch.aside():
                rows = gather(message, self.world)
                self.world.sent.add(message.numel() * message.element_size())
            sizes = [int(size) for size in torch.stack([row[0] for row in rows]).tolist()]
            if max(sizes) <= room:
                return [row[1 : size + 1] for row, size in zip(rows, sizes, strict=True)]
            table.room[table.training] = max(sizes)


class CutTable(torch.nn.Embedding):
    """An nn.Embedding of which this rank has a part: ids in, rows out, as before. All ranks must call it together."""

    cut: Cut
    exchange: Exchange
    # Ids a rank may say in one message, in training and in evaluation, whose batches may be much larger; each grows to the most
    # that any rank had.
    room: dict[bool, int]

    @property
    def shard(self) -> torch.nn.Parameter:
        weight = self._parameters["weight"]
        assert weight is not None
        return weight

    @property
    def weight(self) -> torch.Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Refused: what is there looks like a table and has the rows of another."""
        raise RunFailed(
            "sharding=embedding: the task uses a table's weight itself, and no rank has the whole table; call the table (ids in, rows "
            "out), or use another sharding",
            kind="mismatch",
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_embeddings, self.embedding_dim

    @property
    def dtype(self) -> torch.dtype:
        return self.shard.dtype

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """An id that is no row is found out here: its owner would be nobody, and its place would stay empty."""
        if ids.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"ids of a table must be int32 or int64, not {ids.dtype}")
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= self.num_embeddings):
            raise IndexError(
                f"ids from {int(ids.min())} to {int(ids.max())} in a table of {self.num_embeddings} rows: index out of range"
            )
        return _LookUp.apply(ids, self.shard, self)  # pyright: ignore[reportReturnType]

    def part(self, rank: int | None = None) -> tuple[slice, slice]:
        """Rows and columns a rank has; this one unless said otherwise."""
        return self.cut.of(self.shape, rank)

    def pieces(self) -> Iterator[torch.Tensor]:
        """The whole table, some rows at a time, on every rank and in order; all ranks together."""
        each = max(1, PIECE // self.embedding_dim)
        for rank in range(self.cut.size) if self.cut.split == "rows" else (0,):
            rows = self.part(rank)[0]
            for start in range(rows.start, rows.stop, each):
                stop = min(start + each, rows.stop)
                yield (self._rows(rank, start, stop) if self.cut.split == "rows" else self._slices(start, stop)).cpu()

    def _rows(self, owner: int, start: int, stop: int) -> torch.Tensor:
        piece = self.shard.detach().new_empty(stop - start, self.embedding_dim)
        if owner == self.cut.rank:
            first = self.part()[0].start
            piece.copy_(self.shard.detach()[start - first : stop - first])
        return broadcast(piece, self.exchange.world, src=owner)

    def _slices(self, start: int, stop: int) -> torch.Tensor:
        """Everybody's columns of some rows; as wide as the widest, because a gathering wants one shape."""
        widths = [_num(self.part(rank)[1]) for rank in range(self.cut.size)]
        padded = self.shard.detach().new_zeros(stop - start, max(widths))
        padded[:, : self.shard.shape[1]] = self.shard.detach()[start:stop]
        slices = gather(padded, self.exchange.world)
        return torch.cat([part[:, :width] for part, width in zip(slices, widths, strict=True)], dim=1)


def _num(part: slice) -> int:
    return part.stop - part.start


@dataclass(frozen=True, slots=True)
class _Rows:
    """A table cut by rows: each id has one owner. `local[r]`: which rows here rank r wants; `places[q]`: where rank q's go."""

    local: list[torch.Tensor]
    places: list[torch.Tensor]
    num: int

    @classmethod
    def plan(cls, ids: torch.Tensor, every: list[torch.Tensor], table: CutTable) -> _Rows:
        here = table.part()[0]
        local = [wanted[(wanted >= here.start) & (wanted < here.stop)] - here.start for wanted in every]
        places: list[torch.Tensor] = []
        for rank in range(len(every)):
            rows = table.part(rank)[0]
            places.append(((ids >= rows.start) & (ids < rows.stop)).nonzero().squeeze(1))
        return cls(local, places, len(ids))

    def shapes(self, table: CutTable) -> list[tuple[int, int]]:
        return [(len(place), table.embedding_dim) for place in self.places]

    def join(self, got: list[torch.Tensor]) -> torch.Tensor:
        joined = got[0].new_empty(self.num, got[0].shape[1])
        for place, rows in zip(self.places, got, strict=True):
            joined[place] = rows
        return joined

    def cut(self, gradient: torch.Tensor, table: CutTable) -> list[torch.Tensor]:
        return [gradient[place] for place in self.places]


@dataclass(frozen=True, slots=True)
class _Columns:
    """A table cut by columns: everybody has a slice of every row."""

    local: list[torch.Tensor]
    num: int

    @classmethod
    def plan(cls, ids: torch.Tensor, every: list[torch.Tensor], table: CutTable) -> _Columns:
        return cls(every, len(ids))

    def _columns(self, table: CutTable) -> list[slice]:
        return [table.part(rank)[1] for rank in range(len(self.local))]

    def shapes(self, table: CutTable) -> list[tuple[int, int]]:
        return [(self.num, _num(columns)) for columns in self._columns(table)]

    def join(self, got: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(got, dim=1)

    def cut(self, gradient: torch.Tensor, table: CutTable) -> list[torch.Tensor]:
        return [gradient[:, columns] for columns in self._columns(table)]


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: torch.Tensor, shard: torch.Tensor, table: CutTable) -> torch.Tensor:
        flat = ids.reshape(-1).to(torch.int64)
        every = table.exchange.everybodys(flat, table)
        plan = (_Rows if table.cut.split == "rows" else _Columns).plan(flat, every, table)
        got = table.exchange.all_to_all([shard[local] for local in plan.local], plan.shapes(table))
        ctx.plan, ctx.table = plan, table
        return plan.join(got).view(*ids.shape, table.embedding_dim)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor, None]:
        table, plan = ctx.table, ctx.plan
        shard = table.shard
        parts = plan.cut(gradients[0].reshape(-1, table.embedding_dim), table)
        got = table.exchange.all_to_all(parts, [(len(local), shard.shape[1]) for local in plan.local])
        return None, _gradient(torch.cat(plan.local), torch.cat(got), shard, table), None


def _gradient(rows: torch.Tensor, values: torch.Tensor, shard: torch.Tensor, table: CutTable) -> torch.Tensor:
    """Of this rank's part, from everybody's samples. The padding row has none, as in nn.Embedding."""
    padding = -1
    if table.padding_idx is not None:
        here = table.part()[0]
        padding = table.padding_idx - here.start if here.start <= table.padding_idx < here.stop else -1
    if not table.sparse:
        return torch.ops.aten.embedding_dense_backward(values, rows, len(shard), padding, False)
    wanted = rows != padding
    return torch.sparse_coo_tensor(rows[wanted][None], values[wanted], shard.shape, check_invariants=False)
