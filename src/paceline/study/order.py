"""The order of a study's runs: every repeat is a block that holds each cell once, shuffled, so that drift favours no cell."""

from __future__ import annotations

import random
from collections.abc import Sequence


def order(labels: Sequence[str], *, repeats: int, seed: int) -> list[tuple[str, int]]:
    """(cell, repeat) in running order; a block's order depends on the seed and the block alone, so a resumed study keeps it."""
    runs: list[tuple[str, int]] = []
    for repeat in range(repeats):
        block = list(labels)
        random.Random(f"{seed}/{repeat}").shuffle(block)
        runs += [(label, repeat) for label in block]
    return runs
