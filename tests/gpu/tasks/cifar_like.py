"""Work like that of a CIFAR-10 CNN, on made-up images, with a truth planted in it: batches come late by as much as it says.

After every update it writes down what torch says was allocated at most: the figure that the record's parts must add up to.
"""

import json
import time
from pathlib import Path

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import Dataset


class Images(Dataset):
    def __init__(self, num):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randn(num, 3, 32, 32, generator=generator)
        self.labels = torch.randint(0, 10, (num,), generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return index


class CifarLike:
    def __init__(self, notes: str, batch_ms: float = 0.0):
        self.notes, self.batch_ms, self.took = Path(notes), batch_ms, 0.0
        self.data = {True: Images(4096), False: Images(512)}

    def model(self):
        register_optimizer_step_post_hook(self._write)
        blocks = []
        for before, after in ((3, 32), (32, 64), (64, 128)):
            blocks += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 10))

    def _write(self, *_):
        self.notes.write_text(json.dumps({"max_allocated": torch.cuda.max_memory_allocated(), "took": self.took}))

    def train_data(self):
        return self.data[True]

    def test_data(self):
        return self.data[False]

    def collate(self, ids):
        data = self.data[len(ids) != 128]  # the test batches are of 128
        began = time.perf_counter()
        time.sleep(self.batch_ms / 1e3)
        rows = torch.tensor(ids)
        batch = data.images[rows], data.labels[rows]
        if len(ids) != 128:
            self.took += time.perf_counter() - began
        return batch
