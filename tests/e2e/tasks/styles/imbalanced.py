"""Imbalanced classes, as in most Kaggle kernels: `nn.CrossEntropyLoss` at the top of the file with weights of the classes, counted in the
training data, and a balanced accuracy from a confusion matrix."""

import torch
from torch import nn


def make(num, seed):
    x = torch.randn(num, 5, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0.2).long() + (x[:, 1] > 0.3).long()


class_counts = torch.bincount(make(60, 1)[1], minlength=3)
class_weights = len(make(60, 1)[1]) / (3 * class_counts.float())
loss = nn.CrossEntropyLoss(weight=class_weights, label_smoothing=0.1)


def model():
    return nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 3))


def train_data():
    return make(60, 1)


def test_data():
    return make(26, 2)


def score(outputs, batch):
    return {"table": torch.bincount(3 * batch[1] + outputs.argmax(dim=1), minlength=9)}


def score_of(sums):
    table = sums["table"].reshape(3, 3)
    return {"balanced_accuracy": float((table.diagonal() / table.sum(dim=1).clamp(min=1)).mean())}


better = "higher"
