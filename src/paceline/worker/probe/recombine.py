"""From figures of a batch and of its parts to the way they recombine. Arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

Vectors = tuple[torch.Tensor, ...]  # a value, and its gradient where there is one; each is compared by itself


@dataclass(frozen=True, slots=True)
class Seen:
    """The same function of a batch of `num` samples and of its parts, of `nums`."""

    whole: Vectors
    parts: Sequence[Vectors]
    nums: Sequence[int]

    @property
    def num(self) -> int:
        return sum(self.nums)


def adds_up(seen: Seen, tolerance: float, *, mean: bool) -> bool:
    """Whether the whole is the sum of its parts; with `mean`, each weighed by its samples."""
    for index, whole in enumerate(seen.whole):
        parts = [part[index] for part in seen.parts]
        left = whole * seen.num if mean else whole
        right = [part * num if mean else part for part, num in zip(parts, seen.nums, strict=True)]
        total = torch.stack(right).sum(dim=0)
        scale = max(float(left.norm()), *(float(part.norm()) for part in right))
        if not float((left - total).norm()) <= tolerance * scale:  # also where something is no number
            return False
    return True


def tells(seen: Seen, tolerance: float) -> bool:
    """Whether the parts differ at all: what is the same everywhere looks like a mean, and says nothing."""
    first, *others = seen.parts
    return any(
        float((one - other).norm()) > 10 * tolerance * max(float(one.norm()), float(other.norm()))
        for part in others
        for one, other in zip(first, part, strict=True)
    )


def kind(all_seen: Sequence[Seen], tolerance: float) -> str | None:
    """`mean` or `total`, if it holds wherever it was looked at; None for neither, or where nothing can be told."""
    if not any(tells(seen, tolerance) for seen in all_seen):
        return None
    for word in ("mean", "total"):
        if all(adds_up(seen, tolerance, mean=word == "mean") for seen in all_seen):
            return word
    return None
