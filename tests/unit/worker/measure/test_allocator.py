"""What parts of a program left in use, by malloc's own count."""

from __future__ import annotations

import pytest
import torch

from paceline.worker.measure.allocator import Left, Malloc


def test_what_parts_of_a_program_left_is_added_up() -> None:
    left, none = Left(Malloc()), Left()
    with left, none:
        held = [torch.zeros(1 << 20, dtype=torch.uint8)]
    between = torch.zeros(4 << 20, dtype=torch.uint8)
    with left:
        held.append(torch.zeros(2 << 20, dtype=torch.uint8))
    assert left.nbytes == pytest.approx(3 << 20, rel=0.05) and none.nbytes == 0 < between.numel()
    with left:
        held.clear()
    assert left.nbytes < 100_000, "what was given back is not left"
    with left:
        del between
    assert left.nbytes == 0, "never negative"
