"""Our copy of a batch's rows is torch's, to the byte, for every size of a row; and torch's own where ours is not for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from paceline.worker.kernels import build
from paceline.worker.kernels.gather import Gather, kernel

IDS = torch.randint(0, 300, (200,), generator=torch.Generator().manual_seed(2))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def right(gather: Gather, data: tuple[torch.Tensor, ...], num: int, start: int) -> bool:
    gather(IDS, start)
    wanted = IDS[start : start + num]
    return all(torch.equal(row, tensor[wanted]) for row, tensor in zip(gather.rows, data, strict=True))


@pytest.mark.parametrize("num", [1, 3, 4, 5, 64])
def test_rows_of_every_size(num: int) -> None:
    """Shorter than a cache line, one, and a piece of one over; several tensors at once; from the middle and to the end."""
    widths = (0, 1, 7, 63, 64, 65, 128, 3136)
    data = tuple(torch.randint(0, 256, (300, width), dtype=torch.uint8) for width in widths)
    gather = Gather(data, num)
    assert gather.is_ours
    assert all(right(gather, data, num, start) for start in (0, 17, 200 - num))


def test_every_kind_of_number() -> None:
    data = (
        torch.randn(300, 3, 5), torch.randn(300, 2, dtype=torch.float64), torch.randn(300, 9).bfloat16(), torch.randint(0, 9, (300,)),
        torch.randn(300) > 0, torch.randn(300, 2, dtype=torch.complex64),
    )  # fmt: skip
    gather = Gather(data, 32)
    assert gather.is_ours and right(gather, data, 32, 100)
    assert [row.shape for row in gather.rows] == [(32, *tensor.shape[1:]) for tensor in data]


def test_what_is_left_to_torch() -> None:
    """Rows that do not lie one after the other; several threads, of which ours knows nothing."""
    plain = (torch.randn(300, 6), torch.randint(0, 9, (300,)))
    turned = (torch.randn(6, 300).T, plain[1])
    conjugate = (torch.randn(300, 2, dtype=torch.complex64).conj(), plain[1])
    for data in (turned, conjugate):
        gather = Gather(data, 16)
        assert not gather.is_ours and right(gather, data, 16, 3)
    torch.set_num_threads(2)
    assert not Gather(plain, 16).is_ours


@pytest.mark.parametrize("found", [None, "/bin/false"])
def test_a_machine_that_compiles_nothing(found: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No compiler, or one that fails."""
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path))
    monkeypatch.setattr(build, "compiler", lambda: found)
    for cached in (kernel, build.library):
        cached.cache_clear()
    data = torch.randn(300, 6, requires_grad=True), torch.randint(0, 9, (300,))
    gather = Gather(data, 16)
    assert not gather.is_ours and right(gather, data, 16, 3)
    for cached in (kernel, build.library):
        cached.cache_clear()
