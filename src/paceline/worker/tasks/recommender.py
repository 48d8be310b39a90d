"""Clicks to predict from large embedding tables: the task for sharded tables and sparse gradients.
It must not know any setting; generated data has a fixed seed of its own, so every run trains on the same samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from paceline.base.errors import BadInput

_SEED = 1_000
_DENSE = 4  # plain numbers beside the ids
_FACTORS = 4  # length of the hidden factor of a row
# Whether somebody clicks is the sign of a hidden score plus noise. A row's part of the score is its own effect; the first
# two tables (users and things, say) add the product of their factors. All parts and the noise have unit variance times these.
_EFFECT, _PAIR, _SLOPE, _NOISE = 0.8, 0.6, 0.5, 0.7
_TABLE_INITIAL = 0.05

Array = np.ndarray[Any, np.dtype[Any]]


class Clicks(nn.Module):
    """One embedding table for each id, and a small network on their rows and the plain numbers."""

    def __init__(self, tables: int, rows: int, dim: int, hidden: int, sparse: bool) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, dim, sparse=sparse) for _ in range(tables))
        for table in self.tables.parameters():
            nn.init.uniform_(table, -_TABLE_INITIAL, _TABLE_INITIAL)  # torch's own N(0, 1) drowns the other inputs
        self.hidden = nn.Linear(tables * dim + _DENSE, hidden)
        self.relu = nn.ReLU()
        self.out = nn.Linear(hidden, 2)

    def forward(self, ids: Tensor, dense: Tensor) -> Tensor:
        looked_up = [table(ids[:, number]) for number, table in enumerate(self.tables)]
        return self.out(self.relu(self.hidden(torch.cat([*looked_up, dense], dim=1))))


@dataclass
class Recommender:
    """Two classes, no click and click, so loss and accuracy are the usual ones."""

    data: str | None = None
    tables: int = 4
    rows: int = 1_000
    dim: int = 16
    hidden: int = 64
    sparse: bool = False
    num_train: int = 20_000
    num_test: int = 4_000

    def __post_init__(self) -> None:
        counts = ("tables", "rows", "dim", "hidden", "num_train", "num_test")
        problems = [f"{name}={value}: must be at least 1" for name in counts if (value := getattr(self, name)) < 1]
        if self.data is not None:
            problems.append(f"data={self.data}: recommender generates its clicks and reads no folder; leave data out")
        if problems:
            raise BadInput(problems)

    def model(self) -> nn.Module:
        return Clicks(self.tables, self.rows, self.dim, self.hidden, self.sparse)

    def train_data(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._tensors(self.num_train, stream=1)

    def test_data(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._tensors(self.num_test, stream=2)

    def _tensors(self, num: int, *, stream: int) -> tuple[Tensor, Tensor, Tensor]:
        ids, dense, clicks, _ = generate(num, tables=self.tables, rows=self.rows, stream=stream)
        return torch.from_numpy(ids), torch.from_numpy(dense), torch.from_numpy(clicks)


def generate(num: int, *, tables: int, rows: int, stream: int) -> tuple[Array, Array, Array, Array]:
    """(ids [n, tables], dense [n, 4], clicks [n], the hidden scores [n]). The sign of the score is the best guess there is.

    Plain arithmetic only, no exponential or logarithm, whose last bits differ between machines."""
    rng = np.random.Generator(np.random.PCG64([_SEED, stream]))
    # The cube of a uniform number: a few rows are asked for all the time and most hardly ever. Row 0 is the most popular.
    popular = rng.random((num, tables))
    ids = np.minimum((popular * popular * popular * rows).astype(np.int64), rows - 1)
    dense = _unit(rng.random((num, _DENSE)))
    effects, factors = _hidden(ids)
    score = _EFFECT * _sum(effects) + _SLOPE * _sum(dense)
    if tables > 1:
        score += _PAIR * _sum(factors[:, 0] * factors[:, 1]) / _FACTORS**0.5
    noise = _sum(_unit(rng.random((num, 4)))) / 2  # four uniform numbers are nearly a bell
    return ids, dense.astype(np.float32), (score + _NOISE * noise > 0).astype(np.int64), score


def _hidden(ids: Array) -> tuple[Array, Array]:
    """The effect [n, tables] and the factors [n, tables, 4] of each row, from a hash of table and row.

    A table of them would be as large as the model's own, and ten million rows are wanted for the few that are used."""
    tables = np.arange(ids.shape[1], dtype=np.uint64)
    row = (tables << np.uint64(48)) ^ ids.astype(np.uint64)
    streams = np.arange(1, _FACTORS + 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = row[..., None] + streams
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):  # splitmix64
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    values = _unit((z >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    return values[..., 0], values[..., 1:]


def _unit(uniform: Array) -> Array:
    """Numbers of [0, 1) spread to mean 0 and variance 1."""
    return (2.0 * uniform - 1.0) * 3.0**0.5


def _sum(columns: Array) -> Array:
    """Column after column: the order of numpy's own sum depends on the processor."""
    total = np.zeros(len(columns))
    for number in range(columns.shape[1]):
        total += columns[:, number]
    return total
