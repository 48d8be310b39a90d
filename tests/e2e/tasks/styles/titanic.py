"""Titanic as in a Kaggle kernel: pandas reads the CSV beside this file, fills holes, makes dummies; the data is a frame and a column; a
small network with one logit."""

from pathlib import Path

import pandas as pd
import torch
from torch import nn

HERE = Path(__file__).parent


def load():
    df = pd.read_csv(HERE / "titanic.csv")
    df["Age"] = df["Age"].fillna(df["Age"].median())
    df["FamilySize"] = df["SibSp"] + df["Parch"] + 1
    df = pd.get_dummies(df.drop(columns=["Name", "PassengerId"]), columns=["Sex", "Embarked"], dtype=float)
    for col in ["Age", "Fare"]:
        df[col] = (df[col] - df[col].mean()) / df[col].std()
    return df.drop(columns="Survived"), df["Survived"]


def split(test):
    X, y = load()
    train = X.sample(frac=0.7, random_state=42).index
    rows = X.index.difference(train) if test else train
    return X.loc[rows].astype("float32"), y.loc[rows]


def model():
    X, _ = load()
    return nn.Sequential(nn.Linear(X.shape[1], 8), nn.ReLU(), nn.Linear(8, 1))


def train_data():
    return split(test=False)


def test_data():
    return split(test=True)


loss_fn = nn.BCEWithLogitsLoss()


def loss(outputs, batch):
    return loss_fn(outputs.squeeze(1), batch[1].to(outputs.dtype))


def score(outputs, batch):
    preds = (torch.sigmoid(outputs.squeeze(1)) > 0.5).float()
    return {"accuracy": (preds == batch[1]).float().mean().item()}
