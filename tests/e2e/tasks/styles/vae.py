"""PyTorch's own VAE example, line by line: a summed loss, and noise that is drawn in the model."""

import torch
from torch import nn
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(36, 16)
        self.fc21 = nn.Linear(16, 3)
        self.fc22 = nn.Linear(16, 3)
        self.fc3 = nn.Linear(3, 16)
        self.fc4 = nn.Linear(16, 36)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 36))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def digits(num, seed):
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(3, (num,), generator=generator)
    ink = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    return (ink[label] + 0.1 * torch.randn(num, 1, 6, 6, generator=generator)).clamp(0, 1), label


def model():
    return VAE()


def train_data():
    return digits(50, 1)


def test_data():
    return digits(20, 2)


# Reconstruction + KL divergence losses summed over all elements and batch
def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 36), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def loss(outputs, batch):
    recon_batch, mu, logvar = outputs
    data, _ = batch
    return loss_function(recon_batch, data, mu, logvar)
