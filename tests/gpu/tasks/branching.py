"""A model that decides by a number it has just computed: no graph of a whole step can hold it."""

from __future__ import annotations

import torch
from torch import nn


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if y.mean() > 0:
            return y
        return y * 2


def model() -> nn.Module:
    return Branching()


def train_data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(256, 16, generator=generator), torch.randint(0, 4, (256,), generator=generator)


def test_data() -> tuple[torch.Tensor, torch.Tensor]:
    return train_data()
