"""Weights on disk and their fingerprint: a model in parts leaves what a whole one leaves, and nobody puts a table together for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from paceline.base.errors import RunFailed
from paceline.worker.resilience.weights import fingerprint, restore, save


class Tied(nn.Module):
    """A table, a layer that shares its weight with another, a buffer of another width."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 3)
        self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 3)
        self.two.weight = self.one.weight
        self.register_buffer("seen", torch.tensor([True, False, True]))
        self.register_buffer("wide", torch.tensor(7.0, dtype=torch.float64))


class Parts:
    """A table that is told four rows at a time, and never held whole by who asks."""

    def __init__(self, table: torch.Tensor) -> None:
        self.table, self.told = table, 0
        self.shape, self.dtype = (table.shape[0], table.shape[1]), table.dtype

    def pieces(self) -> Iterator[torch.Tensor]:
        for start in range(0, len(self.table), 4):
            self.told += 1
            yield self.table[start : start + 4]


@pytest.fixture
def broadcast() -> tuple[nn.Module, nn.Module, dict[str, Parts]]:
    """(the whole model, the same with only a part of its table, where the rest comes from)."""
    torch.manual_seed(3)
    whole, part = Tied(), Tied()
    part.load_state_dict(whole.state_dict())
    part.table._parameters["weight"] = nn.Parameter(whole.table.weight.detach()[:4].clone())
    return whole, part, {"table.weight": Parts(whole.table.weight.detach())}


def test_one_fingerprint(broadcast: tuple[nn.Module, nn.Module, dict[str, Parts]]) -> None:
    whole, part, rest = broadcast
    assert fingerprint(part, rest) == fingerprint(whole)
    assert rest["table.weight"].told == 3, "in pieces, not at once"
    assert fingerprint(part) != fingerprint(whole)


def test_the_file_is_a_safetensors_file(
    broadcast: tuple[nn.Module, nn.Module, dict[str, Parts]], tmp_path: Path
) -> None:
    whole, part, rest = broadcast
    save(part, tmp_path / "parts.safetensors", in_parts=rest)
    save(whole, tmp_path / "whole.safetensors")
    ours, theirs = load_file(tmp_path / "parts.safetensors"), load_file(tmp_path / "whole.safetensors")
    assert ours.keys() == theirs.keys(), "tied weights are stored once, under the same name"
    assert all(tensor.equal(ours[name]) and tensor.dtype == ours[name].dtype for name, tensor in theirs.items())
    fresh = Tied()
    restore(fresh, tmp_path / "parts.safetensors")
    assert fingerprint(fresh) == fingerprint(whole)
    assert fresh.one.weight is fresh.two.weight


def test_who_does_not_write_takes_part(
    broadcast: tuple[nn.Module, nn.Module, dict[str, Parts]], tmp_path: Path
) -> None:
    _, part, rest = broadcast
    save(part, tmp_path / "parts.safetensors", in_parts=rest, writes=False)
    assert rest["table.weight"].told == 3 and not list(tmp_path.iterdir())


def test_half_a_file_never_appears(broadcast: tuple[nn.Module, nn.Module, dict[str, Parts]], tmp_path: Path) -> None:
    _, part, rest = broadcast

    def broken() -> Iterator[torch.Tensor]:
        yield rest["table.weight"].table[:4]
        raise RunFailed("another rank went away", kind="peer")

    rest["table.weight"].pieces = broken  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(RunFailed):
        save(part, tmp_path / "parts.safetensors", in_parts=rest)
    assert not list(tmp_path.iterdir())


def test_a_format_without_a_name_is_said(
    broadcast: tuple[nn.Module, nn.Module, dict[str, Parts]], tmp_path: Path
) -> None:
    _, part, rest = broadcast
    part.register_buffer("odd", torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(RunFailed, match="odd is torch"):
        save(part, tmp_path / "parts.safetensors", in_parts=rest)
