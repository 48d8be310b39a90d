"""Tasks put together at random: `fuzzed.py:Fuzzed number=17` is always the same one. What a task has is drawn from its number."""

from __future__ import annotations

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset

import paceline

WIDTH, CLASSES, NUM_TRAIN, NUM_TEST = 5, 3, 45, 19


def flags(number):
    """What the task of this number has. `wrong`: it must be refused everywhere."""
    draw = random.Random(number)
    target = draw.choice(["class", "class", "number"])
    return {
        "target": target,
        "data": draw.choice(["arrays", "arrays", "pairs", "dicts", "stream"]),
        "hidden": draw.choice([4, 7]),
        "norm": draw.choice([None, None, "batch", "layer"]),
        "dropout": draw.random() < 0.15,
        "tied": draw.random() < 0.25,
        "unused": draw.random() < 0.25,
        "frozen": draw.random() < 0.2,
        "state": draw.choice([None] * 6 + ["buffer", "counter", "helper"]),
        "loss": draw.choice(LOSSES[target]),
        "score": draw.choice(SCORES[target]),
        "on_step": draw.random() < 0.15,
        "schedule": draw.random() < 0.2,
        "optimizer": draw.choice([None, None, None, "groups", "own"]),
        "augment": draw.random() < 0.15,
    }


# ---- losses: (outputs, target, beta) -> what the task returns. `wrong` ones are no loss at all. ----
def _each(outputs, target):
    if outputs.shape[1] == 1:
        return (outputs[:, 0] - target) ** 2
    return F.cross_entropy(outputs, target, reduction="none")


def _mask(target):
    return (target > 0).to(torch.float64)


def _alike(outputs, target):
    near = F.normalize(outputs, dim=1)
    same = (target[:, None] > 0) == (target[None, :] > 0)
    return ((near @ near.T - same.to(near.dtype)) ** 2).mean()


def _weights(outputs):
    return outputs.new_tensor([1.0, 3.0, 7.0])


EVERY = {
    "mean": lambda o, t: _each(o, t).mean(),
    "sum": lambda o, t: _each(o, t).sum(),
    "usual size": lambda o, t: _each(o, t).mean() + 0.01 * o.square().mean(),
    "said mean": lambda o, t: paceline.mean(_each(o, t)),
    "said total": lambda o, t: paceline.total(_each(o, t)),
    "half a sum": lambda o, t: 0.5 * _each(o, t).sum() + o.square().sum(),
    "masked": lambda o, t: (_each(o, t) * _mask(t)).sum() / _mask(t).sum().clamp_min(1),
    "masked ratio": lambda o, t: paceline.ratio(_each(o, t) * _mask(t) + 1e-3, _mask(t) + 0.1),
    "pair": lambda o, t: ((_each(o, t) * (0.5 + _mask(t))).sum(), (0.5 + _mask(t)).sum()),
    "root": lambda o, t: _each(o, t).mean().sqrt(),
    "largest": lambda o, t: _each(o, t).max(),
    "coupled": _alike,
    "partly coupled": lambda o, t: {"own": _each(o, t).mean(), "alike": _alike(o, t)},
    "two means": lambda o, t: {"own": _each(o, t).mean(), "size": 0.1 * o.abs().mean()},
    "mean and total": lambda o, t: {"own": paceline.mean(_each(o, t)), "size": paceline.total(0.01 * o.square())},
    "bare mean and sum": lambda o, t: {"own": _each(o, t).mean(), "size": 0.01 * o.square().sum()},
    "mean and ratio": lambda o, t: {"own": _each(o, t).mean(), "rest": paceline.ratio(_each(o, t), 1.0 + _mask(t))},
    "wrong pair": lambda o, t: (_each(o, t).mean(), o.square().mean()),
    "wrong mean": lambda o, t: paceline.mean(_each(o, t).sum()),
    "wrong total": lambda o, t: paceline.total(_each(o, t).mean()),
    "wrong ratio": lambda o, t: paceline.ratio(_each(o, t).mean(), _mask(t).mean() + 1.0),
}
OF_CLASSES = {
    "weighted": lambda o, t: F.cross_entropy(o, t, weight=_weights(o)),
    "weighted ratio": lambda o, t: paceline.ratio(
        F.cross_entropy(o, t, weight=_weights(o), reduction="none"), _weights(o)[t]
    ),
    "smooth": lambda o, t: F.cross_entropy(o, t, label_smoothing=0.1),
    "ignoring": lambda o, t: F.cross_entropy(o, t, ignore_index=2),
    "margin": lambda o, t: F.multi_margin_loss(o, t, p=2),
}
ALL_LOSSES = {**EVERY, **OF_CLASSES}
LOSSES = {"number": [*EVERY, None, "mean", "sum"], "class": [*EVERY, *OF_CLASSES, None, "mean"]}


# ---- scores ----
def _right(outputs, target):
    return (outputs.argmax(1) == target).double()


def _f1(outputs, target):
    found, there = outputs.argmax(1) == 1, target == 1
    return 2.0 * (found & there).sum() / (found.sum() + there.sum()).clamp_min(1).double()


def _r2(outputs, target):
    return 1 - ((outputs[:, 0] - target) ** 2).sum() / ((target - target.mean()) ** 2).sum()


SCORED = {
    "accuracy": lambda o, t: {"right": _right(o, t).mean()},
    "bare": lambda o, t: _each(o, t).mean(),
    "count": lambda o, t: {"right": _right(o, t).sum()},
    "pair": lambda o, t: {"right": (_right(o, t).sum(), len(t))},
    "f1": lambda o, t: {"f1": _f1(o, t), "right": _right(o, t).mean()},
    "mae": lambda o, t: {"mae": (o[:, 0] - t).abs().mean()},
    "r2": lambda o, t: {"r2": _r2(o, t)},
    "worst": lambda o, t: {"worst": _each(o, t).max(), "mean": paceline.mean(_each(o, t))},
    "rmse": lambda o, t: _each(o, t).mean().sqrt(),
    "median": lambda o, t: {"median": _each(o, t).median()},
    "masked": lambda o, t: {"masked": paceline.ratio(_each(o, t) * _mask(t), _mask(t))},
    "sizes": lambda o, t: {"size": paceline.total(o.abs()), "root": o.square().mean().sqrt()},
    "wrong pair": lambda o, t: (_each(o, t).mean(), o.abs().mean()),
    "wrong mean": lambda o, t: {"x": paceline.mean(_each(o, t).max())},
}
_ANY = ["bare", "worst", "rmse", "median", "masked", "sizes", "all", "of", None, "wrong pair", "wrong mean"]
SCORES = {"number": ["mae", "r2", *_ANY], "class": ["accuracy", "count", "pair", "f1", *_ANY]}


class Count:
    def __init__(self):
        self.calls = [0]


class Net(nn.Module):
    def __init__(self, has):
        super().__init__()
        size, out = has["hidden"], CLASSES if has["target"] == "class" else 1
        self.first = nn.Linear(WIDTH, size, bias=has["norm"] != "batch")
        self.norm = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, None: nn.Identity}[has["norm"]](size)
        self.second = nn.Linear(size, size)
        self.third = self.second if has["tied"] else nn.Linear(size, size)
        self.drop = nn.Dropout(0.2 if has["dropout"] else 0.0)
        self.last = nn.Linear(size, out)
        if has["unused"]:
            self.spare = nn.Linear(size, 2)
        if has["frozen"]:
            self.first.weight.requires_grad_(False)
        self.state, self.helper, self.calls = has["state"], Count(), 0
        self.register_buffer("centre", torch.zeros(WIDTH))

    def forward(self, x):
        if self.state == "buffer" and self.training:
            self.centre.mul_(0.9).add_(0.1 * x.detach().mean(0))
        if self.state == "counter":
            self.calls += 1
        if self.state == "helper":
            self.helper.calls[0] += 1
        scale = 1.0 + 0.1 * min(50, self.calls + self.helper.calls[0])
        x = torch.tanh(self.norm(self.first(x - self.centre))) * scale
        return self.last(self.drop(torch.tanh(self.third(torch.tanh(self.second(x))))))


class Sign(torch.optim.Optimizer):
    """No class of torch's, with a state."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    kept = self.state[parameter].setdefault("kept", torch.zeros_like(parameter))
                    kept.mul_(0.8).add_(parameter.grad)
                    parameter.sub_(group["lr"] * kept / (1.0 + kept.abs()))


class Pairs(Dataset):
    def __init__(self, x, y, named):
        self.x, self.y, self.named = x, y, named

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x, y = self.x[index], self.y[index]
        return {"x": x, "labels": y} if self.named else (x, y)


class Stream(IterableDataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __iter__(self):
        return iter(zip(self.x, self.y, strict=True))


class Fuzzed:
    def __init__(self, number: int = 0):
        self.has = has = flags(number)
        self.beta = 0.0
        if has["loss"] is not None:
            self.loss = self._loss
        if has["score"] == "all":
            self.score_all = self._score_all
        elif has["score"] is not None:
            self.score = self._score
            if has["score"] == "of":
                self.score_of = self._score_of
        if has["on_step"]:
            self.on_step = self._on_step
        if has["schedule"]:
            self.schedule = self._schedule
        if has["optimizer"]:
            self.optimizer = self._optimizer
        if has["augment"]:
            self.augment = self._augment

    def model(self):
        return Net(self.has)

    def _data(self, num, seed):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(num, WIDTH, generator=generator, dtype=torch.float64)
        y = x[:, 0] - 0.5 * x[:, 1] + 0.3 * torch.randn(num, generator=generator, dtype=torch.float64)
        if self.has["target"] == "class":
            y = (y > 0).long() + (y > 0.9).long()
        kind = self.has["data"]
        if kind == "arrays":
            return (x, y) if self.has["loss"] is not None or y.dtype == torch.int64 else (x, y[:, None])
        return Stream(x, y) if kind == "stream" else Pairs(x, y, kind == "dicts")

    def train_data(self):
        return self._data(NUM_TRAIN, 1)

    def test_data(self):
        return self._data(NUM_TEST, 2)

    def forward(self, model, batch):
        return model(batch["x"] if isinstance(batch, dict) else batch[0])

    def _target(self, batch):
        target = batch["labels"] if isinstance(batch, dict) else batch[1]
        return target if target.dim() == 1 else target[:, 0]

    def _loss(self, outputs, batch):
        value = ALL_LOSSES[self.has["loss"]](outputs, self._target(batch))
        if self.has["on_step"] and isinstance(value, torch.Tensor):
            return value * (1 + self.beta)
        return value

    def _score(self, outputs, batch):
        target = self._target(batch)
        if self.has["score"] == "of":
            return {"each": _each(outputs, target).sum(), "num": len(target)}
        return SCORED[self.has["score"]](outputs, target)

    def _score_of(self, sums):
        return {"rms": (float(sums["each"]) / float(sums["num"])) ** 0.5}

    def _score_all(self, outputs, targets):
        return {"spread": outputs.double().std(), "median": _each(outputs, targets.reshape(-1)).median()}

    def _on_step(self, step, steps):
        self.beta = step / steps

    def _schedule(self, step, steps):
        return 1 / (1 + step)

    def _optimizer(self, model, lr):
        if self.has["optimizer"] == "own":
            return Sign([p for p in model.parameters() if p.requires_grad], lr)
        bias = [p for name, p in model.named_parameters() if p.requires_grad and name.endswith("bias")]
        rest = [p for name, p in model.named_parameters() if p.requires_grad and not name.endswith("bias")]
        return torch.optim.AdamW([{"params": rest, "weight_decay": 0.1}, {"params": bias, "lr": 2 * lr}], lr=lr)

    def _augment(self, batch, keys):
        """A shift for each sample, drawn from its key."""
        shift = (keys % 1000).to(torch.float64)[:, None] / 1000 - 0.5
        if isinstance(batch, dict):
            return {**batch, "x": batch["x"] + shift.to(batch["x"].dtype)}
        return (batch[0] + shift.to(batch[0].dtype), *batch[1:])
