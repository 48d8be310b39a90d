"""Titanic as in a Kaggle kernel: pandas reads the CSV beside this file, fills holes, makes dummies; a small network with one logit."""

from pathlib import Path

import pandas as pd
import torch
from torch import nn
from torch.utils.data import Dataset, random_split

HERE = Path(__file__).parent


def load():
    df = pd.read_csv(HERE / "titanic.csv")
    df["Age"] = df["Age"].fillna(df["Age"].median())
    df["FamilySize"] = df["SibSp"] + df["Parch"] + 1
    df = pd.get_dummies(df.drop(columns=["Name", "PassengerId"]), columns=["Sex", "Embarked"], dtype=float)
    for col in ["Age", "Fare"]:
        df[col] = (df[col] - df[col].mean()) / df[col].std()
    return df.drop(columns="Survived"), df["Survived"]


class TitanicDataset(Dataset):
    def __init__(self, X, y):
        self.X, self.y = X, y

    def __len__(self):
        return len(self.X)

    def __getitem__(self, idx):
        row = torch.tensor(self.X.iloc[idx].values.astype("float32"))
        return row, torch.tensor(self.y.iloc[idx], dtype=torch.float32)


def split():
    dataset = TitanicDataset(*load())
    return random_split(dataset, [0.7, 0.3], generator=torch.Generator().manual_seed(42))


def model():
    X, _ = load()
    return nn.Sequential(nn.Linear(X.shape[1], 8), nn.ReLU(), nn.Linear(8, 1))


def train_data():
    return split()[0]


def test_data():
    return split()[1]


loss_fn = nn.BCEWithLogitsLoss()


def loss(outputs, batch):
    return loss_fn(outputs.squeeze(1), batch[1])


def score(outputs, batch):
    preds = (torch.sigmoid(outputs.squeeze(1)) > 0.5).float()
    return {"accuracy": (preds == batch[1]).float().mean().item()}
