"""What a ring sends, by kind of collective: the table against a ring that is played through, message by message."""

from __future__ import annotations

from typing import get_args

import pytest

from paceline.worker.world.ring import Kind, sent_bytes

EACH = 600  # bytes of a piece; a tensor has one for each rank


def played(kind: Kind, size: int) -> float:
    """Bytes a rank sends, the mean over ranks: each round is a list of pieces that a rank passes to its neighbour."""
    rounds, pieces = size - 1, list(range(size))
    if kind in ("all_gather", "reduce_scatter"):  # every rank passes one piece in every round
        return sum(EACH for _ in range(rounds))
    if kind == "all_reduce":  # summed and cut, then gathered
        return played("reduce_scatter", size) + played("all_gather", size)
    if kind == "broadcast":  # all but the last rank pass on every piece
        return sum(EACH for _ in range(rounds) for _ in pieces) / size
    if kind in ("all_to_all", "scatter"):  # a piece to each other rank
        return sum(EACH for other in pieces if other)
    return 0


def given(kind: Kind, size: int) -> int:
    return {"all_gather": EACH, "all_to_all": EACH * (size - 1), "barrier": 0}.get(kind, EACH * size)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kind", [kind for kind in get_args(Kind) if kind != "memory"])
def test_the_table_is_what_a_ring_sends(kind: Kind, size: int) -> None:
    assert sent_bytes(kind, given(kind, size), size=size) == pytest.approx(played(kind, size))


@pytest.mark.parametrize(
    ("kind", "factors"),
    [
        ("all_reduce", (1, 4 / 3, 3 / 2)), ("all_gather", (1, 2, 3)), ("reduce_scatter", (1 / 2, 2 / 3, 3 / 4)),
        ("broadcast", (1 / 2, 2 / 3, 3 / 4)), ("scatter", (1 / 2, 2 / 3, 3 / 4)), ("all_to_all", (1, 1, 1)), ("memory", (1, 1, 1)),
        ("barrier", (0, 0, 0)),
    ],
)  # fmt: skip
def test_of_two_three_and_four_ranks(kind: Kind, factors: tuple[float, float, float]) -> None:
    assert [sent_bytes(kind, 1200, size=size) for size in (2, 3, 4)] == pytest.approx([1200 * each for each in factors])
