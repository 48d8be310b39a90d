"""A denoising autoencoder: the data set adds noise from a generator of its own, seeded by the sample's number."""

import torch
from torch import nn
from torch.utils.data import Dataset


class NoisySignals(Dataset):
    def __init__(self, num, first, noise=0.3):
        at = torch.linspace(0, 6.28, 16)
        self.clean = torch.stack([torch.sin(at * (1 + 0.1 * (first + index))) for index in range(num)])
        self.first, self.noise = first, noise

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.first + index)
        clean = self.clean[index]
        return clean + self.noise * torch.randn(clean.shape, generator=generator), clean


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))
        self.decoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 16))

    def forward(self, x):
        return self.decoder(self.encoder(x))


def model():
    return Autoencoder()


def train_data():
    return NoisySignals(42, 0)


def test_data():
    return NoisySignals(15, 100)
