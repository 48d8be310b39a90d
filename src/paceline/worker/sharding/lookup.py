"""An embedding table cut over ranks: rows are fetched for this rank's ids, and their gradients are sent back to the owner.

Every rank sends its ids to all. The owner of a row (or of a slice of it) sends it to the ranks that asked, and the
gradients go the same way back. So a gradient is complete at its owner, and no rank ever holds more of a table, or of
its gradient, than its own part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.sharding.sharded_init import PIECE, Cut
from paceline.worker.world.collectives import all_gather, all_to_all, broadcast
from paceline.worker.world.join import World


@dataclass(frozen=True, slots=True)
class Exchange:
    """The collectives that all cut tables of a model share."""

    world: World
    watch: Stopwatch

    def all_to_all(self, pieces: list[torch.Tensor], shapes: list[tuple[int, int]]) -> list[torch.Tensor]:
        with self.watch.aside():
            return all_to_all(pieces, shapes, self.world)

    def everybodys(self, ids: torch.Tensor, table: CutTable) -> list[torch.Tensor]:
        """The ids of every rank, each list preceded by its length. A rank with more ids than the message has room for
        sends only the length; then all ranks repeat with a larger message. So it is one message, except when the number
        of ids grows."""
        while True:
            room = table.room[table.training]
            message = ids.new_zeros(room + 1)
            message[0] = len(ids)
            if len(ids) <= room:
                message[1 : len(ids) + 1] = ids
            with self.watch.aside():
                rows = all_gather(message, self.world)
                self.world.count("all_gather", message.nbytes)
            sizes = [int(size) for size in torch.stack([row[0] for row in rows]).tolist()]
            if max(sizes) <= room:
                return [row[1 : size + 1] for row, size in zip(rows, sizes, strict=True)]
            table.room[table.training] = max(sizes)


class CutTable(torch.nn.Embedding):
    """An nn.Embedding of which this rank has a part: ids in, rows out, as before. All ranks must call it together."""

    cut: Cut
    exchange: Exchange
    # How many ids fit into one message, in training and in evaluation (whose batches may be much larger). Each grows to the largest
    # number that any rank had.
    room: dict[bool, int]

    @property
    def shard(self) -> torch.nn.Parameter:
        weight = self._parameters["weight"]
        assert weight is not None
        return weight

    @property
    def weight(self) -> torch.Tensor:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Refused, because this rank has only its part: it would look like the table and hold other rows."""
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
        """An id outside of the table is refused here: no rank would own it, and its row in the result would stay
        uninitialised."""
        if ids.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"ids of a table must be int32 or int64, not {ids.dtype}")
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= self.num_embeddings):
            raise IndexError(
                f"ids from {int(ids.min())} to {int(ids.max())} in a table of {self.num_embeddings} rows: index out of range"
            )
        return _LookUp.apply(ids, self.shard, self)  # pyright: ignore[reportReturnType]

    def part(self, rank: int | None = None) -> tuple[slice, slice]:
        """The rows and columns that `rank` has; by default those of this rank."""
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
        """The columns of all ranks for some rows. Each is padded to the widest, because all_gather needs equal
        shapes."""
        widths = [_num(self.part(rank)[1]) for rank in range(self.cut.size)]
        padded = self.shard.detach().new_zeros(stop - start, max(widths))
        padded[:, : self.shard.shape[1]] = self.shard.detach()[start:stop]
        slices = all_gather(padded, self.exchange.world)
        return torch.cat([part[:, :width] for part, width in zip(slices, widths, strict=True)], dim=1)


def _num(part: slice) -> int:
    return part.stop - part.start


@dataclass(frozen=True, slots=True)
class _Rows:
    """A table cut by rows: each id has one owner. `local[r]`: the rows of this rank that rank r asked for. `places[q]`:
    where the rows from rank q go in the result."""

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
    """A table cut by columns: every rank has a slice of every row."""

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
    """The gradient of this rank's part, from the samples of all ranks. The padding row has none, as in nn.Embedding."""
    padding = -1
    if table.padding_idx is not None:
        here = table.part()[0]
        padding = table.padding_idx - here.start if here.start <= table.padding_idx < here.stop else -1
    if not table.sparse:
        return torch.ops.aten.embedding_dense_backward(values, rows, len(shard), padding, False)
    wanted = rows != padding
    return torch.sparse_coo_tensor(rows[wanted][None], values[wanted], shard.shape, check_invariants=False)
