"""A task whose time goes where it is told to, and which writes down itself how long it really slept: the truth to be found."""

import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import Dataset


class Samples(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return index


class Planted:
    def __init__(self, notes: str, batch_ms: float = 0.0, late_ms: float = 0.0, update_ms: float = 0.0, load_s: float = 0.0):  # fmt: skip
        self.notes, self.batch_ms, self.late_ms, self.update_ms, self.load_s = (
            notes,
            batch_ms,
            late_ms,
            update_ms,
            load_s,
        )
        self.slept = {"data": 0.0, "late": 0.0, "update": 0.0, "load": 0.0}

    def _sleep(self, what, seconds):
        if seconds:
            began = time.perf_counter()
            time.sleep(seconds)
            self.slept[what] += time.perf_counter() - began

    def model(self):
        register_optimizer_step_pre_hook(lambda *_: self._sleep("update", self.update_ms / 1e3))
        return torch.nn.Linear(8, 2)

    def train_data(self):
        self._sleep("load", self.load_s)
        return Samples()

    def test_data(self):
        return torch.zeros(4, 8), torch.zeros(4, dtype=torch.int64)

    def collate(self, samples):
        self._sleep("data", self.batch_ms / 1e3)
        return torch.zeros(len(samples), 8), torch.zeros(len(samples), dtype=torch.int64)

    def forward(self, model, batch):
        rank = dist.get_rank() if dist.is_initialized() else 0
        if model.training and rank == 1:
            self._sleep("late", self.late_ms / 1e3)
        if not model.training:  # after the last step: what was really slept
            Path(self.notes, f"rank{rank}.json").write_text(json.dumps(self.slept))
        return model(batch[0])
