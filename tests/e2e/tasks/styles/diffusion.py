"""DDPM's noise prediction on points, as in the annotated notebooks. `Drawn` draws timesteps and noise in the loss' forward pass, as they
do; `ByKey` draws them in `augment` from each sample's key, so they are the same on any rank."""

import math

import torch
from torch import nn

T = 20
betas = torch.linspace(1e-4, 0.2, T, dtype=torch.float64)
alphas_cumprod = torch.cumprod(1 - betas, dim=0)


def embedding(t, dim=8):
    freqs = torch.exp(-math.log(100) * torch.arange(dim // 2, device=t.device) / (dim // 2))
    args = t[:, None] * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 + 8, 24), nn.SiLU(), nn.Linear(24, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, embedding(t).to(x.dtype)], dim=1))


def q_sample(x0, t, noise):
    a = alphas_cumprod.to(x0)[t][:, None]
    return a.sqrt() * x0 + (1 - a).sqrt() * noise


def moons(num, seed):
    generator = torch.Generator().manual_seed(seed)
    angle = math.pi * torch.rand(num, generator=generator)
    flip = torch.randint(2, (num,), generator=generator) * 2 - 1
    return torch.stack([torch.cos(angle) * flip, torch.sin(angle) * flip], dim=1)


class Drawn:
    def model(self):
        return Denoiser()

    def train_data(self):
        return (moons(50, 1),)

    def test_data(self):
        return (moons(20, 2),)

    def forward(self, model, batch):
        x0 = batch[0]
        t = torch.randint(0, T, (len(x0),), device=x0.device)
        noise = torch.randn_like(x0)
        return model(q_sample(x0, t, noise), t), noise

    def loss(self, outputs, batch):
        predicted, noise = outputs
        return nn.functional.mse_loss(noise, predicted)


class ByKey(Drawn):
    def train_data(self):  # a batch keeps its form: there is a place for what augment draws
        x0 = moons(50, 1)
        return x0, torch.zeros(50, dtype=torch.long), torch.zeros(50, 2)

    def noised(self, x0, keys):
        generators = [torch.Generator().manual_seed(int(key)) for key in keys]
        t = torch.cat([torch.randint(0, T, (1,), generator=generator) for generator in generators])
        noise = torch.stack([torch.randn(2, generator=generator) for generator in generators]).to(x0)
        return q_sample(x0, t, noise), t, noise

    def augment(self, batch, keys):
        return self.noised(batch[0], keys)

    def test_data(self):
        return self.noised(moons(20, 2), range(20))

    def forward(self, model, batch):
        noisy, t, noise = batch
        return model(noisy, t), noise

    def score(self, outputs, batch):
        return {"noise_mse": ((outputs[0] - outputs[1]) ** 2).mean(dim=1).mean()}
