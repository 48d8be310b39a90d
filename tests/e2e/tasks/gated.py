"""A task that waits while a file called `hold` lies beside it, so that a test can meet a run in the middle, without guessing times.

`hold-import` does the same at its import. Its other modes fail until a file called `mended` lies there.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import torch

HERE = Path(__file__).parent
OF_A_RANK = ("PACELINE_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def wait_while(name: str) -> None:
    while (HERE / name).exists():
        (HERE / "waiting").touch()
        time.sleep(0.01)


wait_while("hold-import")


def samples(num: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(num, 4), torch.arange(num) % 2


class Gated:
    def __init__(self, mode: str = "works") -> None:
        self.mode = mode

    def model(self):
        return torch.nn.Linear(4, 2)

    def train_data(self):
        return samples(32)

    def test_data(self):
        return samples(8)

    def forward(self, model, batch):
        if not any(name in os.environ for name in OF_A_RANK):  # it is only looked into
            return model(batch[0])
        if self.mode == "stubborn":
            signal.signal(signal.SIGTERM, lambda *_: (HERE / "asked to leave").touch())
        wait_while("hold")
        if not (HERE / "mended").exists():
            if self.mode == "raises":
                raise ValueError("not mended yet")
            if self.mode == "hangs":
                time.sleep(600)
        return model(batch[0])
