"""Models for the profiler: one layer used twice, and one that breaks in the middle of a batch."""

from __future__ import annotations

import torch
from good import Good


class Twice(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.again = self.layer
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.again(torch.relu(self.layer(x)))))


class Shared(Good):
    def model(self):
        return Twice()


class Unfinished(torch.nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("this layer is not written yet")


class Breaks(Good):
    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(4, 4), Unfinished(4, 2))
