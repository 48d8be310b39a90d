"""What a step is given: its micro-batches, and where its samples stand in the epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

Micro = tuple[Any, int, bool]  # a micro-batch, its number of samples, whether it is the step's last


@dataclass(frozen=True, slots=True)
class SamplePosition:
    """`num` samples from `start` on among this rank's samples of the epoch, whose ids (and keys for augmentation) are on the
    device. A step that is one graph fetches them itself."""

    ids: torch.Tensor
    keys: torch.Tensor | None
    start: int
    num: int


class StepInput:
    """The micro-batches of one step, each fetched when it is asked for, which is timed as `data`. `position` is there where the
    data lies on the device as tensors. `num_global`: the samples of all ranks in this step."""

    __slots__ = ("micro", "num_global", "position")

    def __init__(self, micro: Iterator[Micro], position: SamplePosition | None = None, num_global: int = 0) -> None:
        self.micro, self.position, self.num_global = micro, position, num_global

    def __iter__(self) -> Iterator[Micro]:
        return self.micro
