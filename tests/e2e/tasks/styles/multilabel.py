"""Several labels a sample, as in Kaggle's: BCEWithLogits with `pos_weight` as a module at the top of the file, macro F1 over the whole
test set."""

import numpy as np
import torch
from torch import nn

NUM_LABELS = 4
pos_weight = torch.tensor([1.0, 2.0, 5.0, 9.0])
loss = nn.BCEWithLogitsLoss(pos_weight=pos_weight)


def make(num, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num, 6, generator=generator)
    to = torch.randn(6, NUM_LABELS, generator=torch.Generator().manual_seed(0))
    return x, ((x @ to) > torch.tensor([0.0, 1.0, 2.0, 2.5])).float()


def model():
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, NUM_LABELS))


def train_data():
    return make(48, 1)


def test_data():
    return make(25, 2)


def f1_macro(y_true, y_pred):
    scores = []
    for k in range(y_true.shape[1]):
        tp = np.sum(y_true[:, k] * y_pred[:, k])
        scores.append(2 * tp / max(np.sum(y_true[:, k]) + np.sum(y_pred[:, k]), 1))
    return float(np.mean(scores))


def score_all(outputs, targets):
    return {"f1_macro": f1_macro(targets.numpy(), (outputs.sigmoid() > 0.5).numpy().astype(float))}


better = "higher"
