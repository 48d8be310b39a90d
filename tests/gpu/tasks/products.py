"""A convolution and two matrix products wide enough for the GPU's tensor cores: what TF32 rounds, and what fp32 must not."""

from __future__ import annotations

import torch


class Products:
    defaults = {"batch": 32, "optimizer": "sgd", "lr": 0.05}

    def model(self) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Conv2d(16, 64, 3, padding=1), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(64 * 64, 256), torch.nn.Tanh(),
            torch.nn.Linear(256, 16),
        )  # fmt: skip

    def _data(self, num: int) -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.Generator().manual_seed(num)
        return torch.randn(num, 16, 8, 8, generator=made), torch.randint(0, 16, (num,), generator=made)

    def train_data(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._data(320)

    def test_data(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self._data(64)
