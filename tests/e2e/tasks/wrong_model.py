"""Models that cannot be trained, and tasks that do not say what they must."""

from __future__ import annotations

import os

import torch
from good import Good, samples


class NotAModule(Good):
    def model(self):
        return {"layers": 2}


class NoParameters(Good):
    def model(self):
        return torch.nn.ReLU()


class Frozen(Good):
    def model(self):
        return torch.nn.Linear(4, 2).requires_grad_(False)


class RaisesInModel(Good):
    def model(self):
        raise FileNotFoundError("weights.bin")


class WrongWidth(Good):
    def model(self):
        return torch.nn.Linear(5, 2)


class TooLarge(Good):
    def model(self):
        return torch.nn.Linear(1 << 30, 1 << 20)


class OneSampleForBatchNorm(Good):
    """33 samples in batches of 8: the last batch holds one, and BatchNorm cannot train on it."""

    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))

    def train_data(self):
        return samples(33)


class BadBetter(Good):
    better = "bigger"


class UnknownDefault(Good):
    defaults = {"bach": 8}


class ImpossibleDefault(Good):
    defaults = {"batch": 0}


class NoDefault(Good):
    def __init__(self, width: int) -> None:
        self.width = width


class Wide(Good):
    def __init__(self, width: int = 4) -> None:
        self.width = width


class NoTestData:
    model, train_data = Good.model, Good.train_data


class OfItsRank(Good):
    """Each rank builds another model."""

    def model(self):
        wide = 2000 + 2000 * int(os.environ.get("PACELINE_RANK", "0"))
        return torch.nn.Sequential(torch.nn.Linear(4, wide), torch.nn.Linear(wide, 2))
