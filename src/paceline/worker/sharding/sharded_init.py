"""Builds an embedding table that is cut over ranks: each rank keeps only its part, with the values it has in one process.

While a task builds its model, each nn.Embedding gets a weight that has the shape of the whole table and stores only
this rank's rows or columns. Random values are drawn piece by piece from the usual generator and those of other ranks
are dropped, so no rank ever holds the whole table, and the generator ends in the same state as in one process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paceline.base.errors import RunFailed
from paceline.spec.topology import share

PIECE = 1 << 18  # numbers drawn, or put together, at a time: 1 MB in fp32
# torch's normal_ makes its numbers 16 at a time, and the last 16 anew where they are fewer: a piece must not end inside them.
_BLOCK = 16
_aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Cut:
    """Which rows, or which columns, belong to which rank."""

    split: str
    rank: int
    size: int

    def of(self, shape: tuple[int, int], rank: int | None = None) -> tuple[slice, slice]:
        """The rows and columns of a table that `rank` holds; by default those of this rank."""
        whole = [slice(0, num) for num in shape]
        which = 0 if self.split == "rows" else 1
        whole[which] = slice(*share(shape[which], rank=self.rank if rank is None else rank, world_size=self.size))
        return whole[0], whole[1]


class ShardedInit:
    """A table's shape, and this rank's part of its values. Without a `cut` it has a shape and no values (an
    outline)."""

    def __init__(self, shape: tuple[int, int], dtype: torch.dtype, cut: Cut | None) -> None:
        self.shape, self.dtype, self._outline = shape, dtype, cut is None
        self.rows, self.columns = (slice(0, 0), slice(0, shape[1])) if cut is None else cut.of(shape)
        self.values = torch.empty(*(part.stop - part.start for part in (self.rows, self.columns)), dtype=dtype)

    def fill(self, fill: Callable[[torch.Tensor], Any]) -> None:
        """Fill as `fill` would fill the whole table: all random values are drawn in order, and those of this rank are
        kept."""
        for start, stop in () if self._outline else _pieces(self.shape):
            piece = torch.empty(stop - start, self.shape[1], dtype=self.dtype)
            fill(piece)
            low, high = max(start, self.rows.start), min(stop, self.rows.stop)
            if low < high:
                self.values[low - self.rows.start : high - self.rows.start] = piece[
                    low - start : high - start, self.columns
                ]

    def here(self, row: int | None) -> torch.Tensor | None:
        """This rank's part of the table, or of one of its rows."""
        if row is None:
            return self.values
        return self.values[row - self.rows.start] if self.rows.start <= row < self.rows.stop else None


def _pieces(shape: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """
    >>> list(_pieces((70, PIECE)))
    [(0, 16), (16, 32), (32, 48), (48, 70)]
    """
    rows, start = shape[0], 0
    step = max(_BLOCK, PIECE // max(shape[1], 1) // _BLOCK * _BLOCK)
    while start < rows:
        stop = start + step if rows - start - step >= _BLOCK else rows
        yield start, stop
        start = stop


class ShardedInitTensor(torch.Tensor):
    """The weight of a table as the task's code sees it. It can be filled with constants or random values; any other
    operation raises RunFailed."""

    shard: ShardedInit
    row: int | None

    @staticmethod
    def __new__(cls, shard: ShardedInit, row: int | None = None) -> ShardedInitTensor:
        shape = shard.shape if row is None else shard.shape[1:]
        made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=shard.dtype)  # pyright: ignore[reportAttributeAccessIssue]
        made.shard, made.row = shard, row
        return made

    _RANDOM: ClassVar = (_aten.normal_.default, _aten.uniform_.default)
    # Elementwise, with scalar arguments: on a part of the table they give what they give on the whole.
    _EACH: ClassVar = (
        _aten.fill_.Scalar, _aten.fill_.Tensor, _aten.zero_.default, _aten.mul_.Tensor, _aten.mul_.Scalar, _aten.div_.Tensor,
        _aten.div_.Scalar, _aten.add_.Tensor, _aten.add_.Scalar, _aten.sub_.Tensor, _aten.sub_.Scalar, _aten.clamp_.default,
    )  # fmt: skip

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        table, rest = args[0] if args else None, args[1:]
        several = any(
            isinstance(given, torch.Tensor) and (given.dim() or isinstance(given, ShardedInitTensor)) for given in rest
        )
        if isinstance(table, ShardedInitTensor) and not several:
            shard, row = table.shard, table.row
            if func in (_aten.detach.default, _aten.alias.default):
                return ShardedInitTensor(shard, row)
            if func in cls._RANDOM and row is None:
                shard.fill(lambda piece: func(piece, *rest, **kwargs))
                return table
            if func in cls._EACH:
                if (numbers := shard.here(row)) is not None:
                    func(numbers, *rest, **kwargs)
                return table
            if func is _aten.select.int and row is None and rest[0] == 0:
                return ShardedInitTensor(shard, rest[1] % shard.shape[0])
        raise RunFailed(
            f"sharding=embedding: model() uses a table's weight in {func}, and no rank has the whole table; a table that is cut can be "
            "filled by normal_, uniform_ or a number, and one of its rows by a number: initialise it so, or use another sharding",
            kind="mismatch",
        )


class Cutting(TorchDispatchMode):
    """While this mode is on, an nn.Embedding allocates only this rank's part of its weight."""

    def __init__(self, cut: Cut | None) -> None:
        super().__init__()
        self._cut = cut

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _aten.empty.memory_format and (table := _under_construction()) is not None:
            shape = (table.num_embeddings, table.embedding_dim)
            if self._cut is not None and shape[0 if self._cut.split == "rows" else 1] < self._cut.size:
                raise RunFailed(
                    f"sharding=embedding: a table of {shape[0]} rows and {shape[1]} columns cannot be cut by {self._cut.split} over "
                    f"{self._cut.size} ranks: use fewer processes, or another table_split",
                    kind="mismatch",
                )
            device = kwargs.get("device")
            if device is not None and torch.device(device).type != "cpu":
                raise RunFailed(
                    f"sharding=embedding: model() makes a table on {device}; tables that are cut are made on the CPU, whose random "
                    "numbers can be drawn in pieces: leave its device out",
                    kind="mismatch",
                )
            return ShardedInitTensor(ShardedInit(shape, kwargs.get("dtype") or torch.get_default_dtype(), self._cut))
        return func(*args, **kwargs)


def _under_construction() -> torch.nn.Embedding | None:
    """The nn.Embedding whose __init__ allocates its weight right now. It is found in the call stack, because torch has
    no hook there."""
    frame: Any = sys._getframe(2)
    for _ in range(8):
        if frame is None:
            return None
        if frame.f_code is torch.nn.Embedding.__init__.__code__:
            table = frame.f_locals["self"]
            return None if "weight" in table._parameters else table
        frame = frame.f_back
    return None
