"""From figures of a batch and of its parts to the way they recombine. Arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

# What a task rounds to by itself (`logits.float()`), in a probe that computes in double precision.
_ROUNDED = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 1e-2}
ENOUGH = 16  # samples, for three parts
Vectors = tuple[torch.Tensor, ...]  # a value, and its gradient where there is one; each is compared by itself


def uneven(num: int) -> list[range]:
    """Parts of so many samples. A mean of means over equal parts would be right by chance; and so would be, over parts of even sizes
    alone, a loss that pairs samples or takes half of them."""
    first, second = (num // 4 - 1, num * 3 // 10) if num >= ENOUGH else (max(1, num // 3), 0)
    ends = (0, first, first + second, num)
    return [range(start, stop) for start, stop in pairwise(ends) if stop > start]


def rounding(values: Iterable[Any]) -> float:
    """The tolerance that the coarsest number format asks for, of these tensors and of what their gradients go through."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    formats = {tensor.dtype for tensor in tensors}
    for node in nodes_behind(tensors):
        formats |= {given.dtype for given in getattr(node, "_input_metadata", ())}
    return max((_ROUNDED.get(dtype, 0.0) for dtype in formats), default=0.0)


def nodes_behind(tensors: Iterable[Any]) -> Iterator[Any]:
    """Of the graph that a gradient goes through, each once."""
    queue, done = [tensor.grad_fn for tensor in tensors if isinstance(tensor, torch.Tensor)], set[Any]()
    while queue:
        node = queue.pop()
        if node is None or node in done:
            continue
        done.add(node)
        yield node
        queue += [following for following, _ in node.next_functions]


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
