"""A table read by polars: lazy, with expressions, split by a hash column; a linear regression on its columns."""

from pathlib import Path

import polars as pl
import torch
from torch import nn

HERE = Path(__file__).parent
FEATURES = ["rooms", "area", "age", "is_new"]


def table(split):
    return (
        pl.scan_csv(HERE / "houses.csv")
        .with_columns(is_new=(pl.col("age") < 5).cast(pl.Float32), area=pl.col("area") / 100)
        .filter(pl.col("split") == split)
        .collect()
    )


def columns(split):
    df = table(split)
    return df.select(pl.col(FEATURES).cast(pl.Float32)), df["price"].cast(pl.Float32)


def model():
    return nn.Linear(len(FEATURES), 1)


def train_data():
    return columns("train")


def test_data():
    return columns("test")


def optimizer(model, lr):
    return torch.optim.Adam(model.parameters(), lr=lr, weight_decay=1e-3)
