"""Forecasting as in the time-series notebooks: sliding windows of one series, a GRU, R2 and MAPE of the whole test set."""

import numpy as np
from torch import nn

LOOKBACK, HORIZON = 10, 3


def series():
    at = np.arange(110)
    rng = np.random.default_rng(0)
    return (np.sin(at / 5) + 0.3 * np.sin(at / 2) + 0.1 * rng.standard_normal(len(at)) + 2).astype(np.float32)


def create_sequences(data):
    xs, ys = [], []
    for i in range(len(data) - LOOKBACK - HORIZON + 1):
        xs.append(data[i : i + LOOKBACK])
        ys.append(data[i + LOOKBACK : i + LOOKBACK + HORIZON])
    return np.array(xs)[:, :, None], np.array(ys)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 8, batch_first=True)
        self.fc = nn.Linear(8, HORIZON)

    def forward(self, x):
        h0 = x.new_zeros(1, x.size(0), 8)
        out, _ = self.gru(x, h0)
        return self.fc(out[:, -1])


def model():
    return Forecaster()


def train_data():
    return create_sequences(series()[:70])


def test_data():
    return create_sequences(series()[70:])


def score_all(outputs, targets):
    left = ((targets - outputs) ** 2).sum()
    r2 = 1 - left / ((targets - targets.mean(dim=0)) ** 2).sum()
    return {"r2": r2.item(), "mape": ((targets - outputs) / targets).abs().mean().item()}


better = "higher"
