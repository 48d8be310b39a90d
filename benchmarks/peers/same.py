"""What is the same for every contestant of benchmarks/train.py: model, data, order of samples, update, clock and evaluation.

Nothing here makes a peer slower than its users have it: the loader is the ordinary one, and only its sampler is ours, which hands
out the order that Paceline uses, as cheaply as torch's own. So all contestants see the same batches, and accuracies differ by rounding.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import DataLoader, Sampler, TensorDataset

from paceline.records.steady import WARMUP_STEPS
from paceline.worker.tasks.load import load_task
from paceline.worker.tasks.order import epoch_order
from paceline.worker.world.seed import seed_everything

_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
_TEST_BATCH = 500


@dataclass(frozen=True, slots=True)
class Asked:
    """The same of everybody. `steps` ends the training early; `decay` multiplies the rate after each epoch; `tf32` lets a GPU round
    the factors of matrix products too, as torch lets it those of convolutions unless it is told not to."""

    task: str
    params: dict[str, Any]
    data: str | None
    device: str
    threads: int
    batch: int
    seed: int
    epochs: int
    steps: int | None
    optimizer: str
    lr: float
    weight_decay: float
    decay: float
    tf32: bool


class Order(Sampler[int]):
    """Paceline's order of an epoch. Lightning and accelerate call `set_epoch` by themselves; a plain loop does it."""

    def __init__(self, num: int, seed: int) -> None:
        self.num, self.seed, self.epoch = num, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num

    def __iter__(self) -> Iterator[int]:
        yield from epoch_order(self.num, seed=self.seed, epoch=self.epoch, shuffle=True).tolist()


class Clock:
    """Training steps alone, by Paceline's own rule: its first steps are dropped, evaluation is not in it. It waits for a GPU where it
    begins and ends to count, nowhere else."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.steps, self.samples, self.seconds = 0, 0, 0.0
        self._began = 0.0

    def begin(self) -> None:
        self._began = self._now()

    def after_step(self, num: int) -> None:
        self.steps += 1
        self.samples += num
        if self.steps == WARMUP_STEPS:
            self.samples, self.seconds, self._began = 0, 0.0, self._now()

    def end(self) -> None:
        self.seconds += self._now() - self._began

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()


@dataclass(frozen=True, slots=True)
class Ground:
    """What a contestant is given."""

    asked: Asked
    model: nn.Module
    loader: DataLoader[Any]
    order: Order
    test: tuple[torch.Tensor, torch.Tensor]
    clock: Clock

    def update(self) -> torch.optim.Optimizer:
        """As torch has it: whether tensor by tensor or all at once is torch's own choice."""
        asked = self.asked
        kind = _OPTIMIZERS[asked.optimizer]
        return kind(self.model.parameters(), lr=asked.lr, weight_decay=asked.weight_decay)

    def schedule(self, optimizer: torch.optim.Optimizer) -> ExponentialLR:
        return ExponentialLR(optimizer, gamma=self.asked.decay)

    def epochs(self) -> range:
        return range(self.asked.epochs)

    def enough(self) -> bool:
        return self.asked.steps is not None and self.clock.steps >= self.asked.steps


def ground() -> Ground:
    """From the one argument, which is JSON. Seeds are set where Paceline sets them, so the weights at the start are its weights."""
    asked = Asked(**json.loads(sys.argv[1]))
    torch.set_num_threads(asked.threads)
    if asked.tf32:
        torch.set_float32_matmul_precision("high")
    task = load_task(asked.task, asked.params, asked.data)
    seed_everything(asked.seed)
    train_x, train_y = task.train_data()
    test = task.test_data()
    seed_everything(asked.seed)
    model = task.build_model()
    order = Order(len(train_x), asked.seed)
    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=asked.batch, sampler=order, num_workers=0)
    return Ground(asked, model, loader, order, test, Clock(asked.device))


def finish(given: Ground, model: nn.Module) -> None:
    """Scores the model and prints the one line that is read."""
    x, y = given.test
    correct, loss = 0, 0.0
    model.eval().to(given.asked.device)
    with torch.no_grad():
        for start in range(0, len(x), _TEST_BATCH):
            inputs, labels = (part[start : start + _TEST_BATCH].to(given.asked.device) for part in (x, y))
            outputs = model(inputs)
            loss += functional.cross_entropy(outputs, labels, reduction="sum").item()
            correct += int((outputs.argmax(dim=1) == labels).sum())
    clock = given.clock
    if torch.get_num_threads() != given.asked.threads:
        raise SystemExit(f"asked for {given.asked.threads} threads, got {torch.get_num_threads()}")
    found = {
        "rate": clock.samples / clock.seconds,
        "accuracy": correct / len(x),
        "loss": loss / len(x),
        "steps": clock.steps,
        "seconds": clock.seconds,
        "test_num": len(x),
        "gpu": torch.cuda.get_device_name() if given.asked.device == "cuda" else None,
    }
    print(json.dumps(found), flush=True)
