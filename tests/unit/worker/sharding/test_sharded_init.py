"""A table of which only a part is made starts with the numbers it would have had whole, bit by bit, and leaves the stream there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor, nn

from paceline.base.errors import RunFailed
from paceline.worker.sharding.sharded_init import PIECE, Cut, Cutting, ShardedInitTensor

FILLS: dict[str, Callable[[Tensor], Any]] = {
    "as it is": lambda weight: None,
    "uniform": lambda weight: nn.init.uniform_(weight, -0.2, 0.1),
    "xavier, halved": lambda weight: nn.init.xavier_normal_(weight).data.mul_(0.5),
    "a row": lambda weight: weight.data[3].fill_(2.0),
}


def build(rows: int, columns: int, dtype: torch.dtype, fill: Callable[[Tensor], Any]) -> tuple[Any, Tensor]:
    torch.manual_seed(11)
    table = nn.Embedding(rows, columns, padding_idx=1, dtype=dtype)
    with torch.no_grad():
        fill(table.weight)
    return table.weight, torch.rand(4)


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS.keys())
@pytest.mark.parametrize("split", ["rows", "columns"])
@pytest.mark.parametrize(("rows", "columns"), [(2 * PIECE // 5 + 7, 5), (37, 3)])
def test_the_same_numbers(rows: int, columns: int, split: str, fill: Callable[[Tensor], Any]) -> None:
    for dtype in (torch.float32, torch.float64):
        whole, after = build(rows, columns, dtype, fill)
        parts: list[Tensor] = []
        for rank in range(3):
            with Cutting(Cut(split, rank, 3)):
                part, then = build(rows, columns, dtype, fill)
            assert isinstance(part, ShardedInitTensor) and part.shape == whole.shape and part.requires_grad
            assert then.equal(after), "what is drawn next is what would have been drawn next"
            assert part.shard.values.numel() < 0.45 * whole.numel()
            parts.append(part.shard.values)
        assert torch.cat(parts, dim=0 if split == "rows" else 1).equal(whole)


def test_other_layers_are_left_alone() -> None:
    with Cutting(Cut("rows", 0, 2)):
        model = nn.Sequential(nn.Linear(3, 4), nn.Embedding(6, 4), nn.BatchNorm1d(4))
    assert [type(parameter) for parameter in model.parameters()].count(ShardedInitTensor) == 1
    torch.manual_seed(0)
    plain = nn.Linear(3, 4).weight
    torch.manual_seed(0)
    with Cutting(Cut("rows", 0, 2)):
        assert nn.Linear(3, 4).weight.equal(plain)


@pytest.mark.parametrize(
    "use",
    [
        lambda weight: weight.sum(), lambda weight: weight @ weight.T, lambda weight: weight.copy_(torch.ones(6, 4)),
        nn.init.trunc_normal_, lambda weight: weight[1:3].fill_(1.0), lambda weight: weight.clone(),
        lambda weight: weight.mul_(torch.ones(4)), lambda weight: weight.to(torch.float64), lambda weight: weight.bernoulli_(0.5),
    ],
)  # fmt: skip
def test_whatever_needs_the_whole_table_is_said(use: Callable[[Tensor], Any]) -> None:
    with Cutting(Cut("rows", 0, 2)):
        table = nn.Embedding(6, 4)
    with torch.no_grad(), pytest.raises(RunFailed, match="no rank has the whole table"):
        use(table.weight)


def test_a_table_elsewhere_or_too_small_is_said() -> None:
    with Cutting(Cut("columns", 0, 3)):
        with pytest.raises(RunFailed, match="cannot be cut by columns over 3 ranks"):
            nn.Embedding(6, 2)
        with pytest.raises(RunFailed, match="makes a table on meta"):
            nn.Embedding(6, 4, device="meta")


def test_an_outline_has_no_numbers() -> None:
    """A table of 4 TB can be looked at."""
    with Cutting(None):
        table = nn.Embedding(1 << 34, 64)
        nn.init.uniform_(table.weight, -1, 1)
    assert table.weight.numel() == 1 << 40 and list(table.weight.shape) == [1 << 34, 64]
    assert isinstance(table.weight, ShardedInitTensor) and table.weight.shard.values.numel() == 0
