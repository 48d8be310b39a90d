"""Data that is not what train_data() must return, or not what it says it is."""

from __future__ import annotations

import os

import torch
from good import Good, samples
from torch.utils.data import Dataset, IterableDataset


class WrongType(Good):
    def train_data(self):
        return "train.csv"


class Empty(Good):
    def train_data(self):
        return samples(0)


class EmptyTest(Good):
    def test_data(self):
        return samples(0)


class Mismatched(Good):
    def train_data(self):
        return samples(32)[0], samples(30)[1]


class RaisesInData(Good):
    def train_data(self):
        raise PermissionError("the share is not mounted")


class LabelTooLarge(Good):
    """The model has two outputs."""

    def train_data(self):
        return samples(32)[0], torch.full((32,), 7)


class Uneven(Good):
    """A rank that sees other data than its peers: a hang in the making."""

    def train_data(self):
        return samples(32 + 8 * int(os.environ.get("PACELINE_RANK", "0")))


class _Rows(Dataset):
    """A map-style Dataset with one row it cannot read."""

    def __init__(self, num: int, unreadable: int = -1) -> None:
        self.inputs, self.targets = samples(num)
        self.unreadable = unreadable

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        if index == self.unreadable:
            raise ValueError(f"row {index} cannot be read")
        return self.inputs[index], self.targets[index]


class UnreadableRow(Good):
    def train_data(self):
        return _Rows(32, unreadable=3)


class UnreadableInALoader(Good):
    def train_data(self):
        return _Rows(32, unreadable=3 if "PACELINE_RANK" in os.environ else -1)


class _Endless(Dataset):
    def __getitem__(self, index):
        return samples(1)


class NoLength(Good):
    def train_data(self):
        return _Endless()


class _Stream(IterableDataset):
    def __init__(self, *, says: int, gives: int) -> None:
        self.says, self.gives = says, gives

    def __len__(self):
        return self.says

    def __iter__(self):
        return zip(*samples(self.gives), strict=True)


class Stream(Good):
    def train_data(self):
        return _Stream(says=32, gives=32)


class ShortStream(Good):
    def train_data(self):
        return _Stream(says=32, gives=20)


class LongStream(Good):
    def train_data(self):
        return _Stream(says=32, gives=40)
