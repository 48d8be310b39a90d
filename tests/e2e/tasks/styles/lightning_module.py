"""A LightningModule with its data module, as in Lightning's own tutorials."""

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class LitClassifier(L.LightningModule):
    def __init__(self, hidden: int = 12, lr: float = 0.02):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(6, hidden), nn.Tanh(), nn.Linear(hidden, 3))

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def test_step(self, batch, batch_idx):
        x, y = batch
        self.log("test_acc", (self(x).argmax(dim=1) == y).double().mean(), on_epoch=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


class Points(L.LightningDataModule):
    def __init__(self, num: int = 60, batch_size: int = 7):
        super().__init__()
        self.num, self.batch_size = num, batch_size

    def setup(self, stage):
        x = torch.randn(self.num + 23, 6, generator=torch.Generator().manual_seed(3))
        y = (x.sum(dim=1) > 0).long() + (x[:, 0] > 1).long()
        self.train = TensorDataset(x[: self.num], y[: self.num])
        self.test = TensorDataset(x[self.num :], y[self.num :])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def test_dataloader(self):
        return DataLoader(self.test, batch_size=self.batch_size)
