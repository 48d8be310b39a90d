"""Segmentation with a U-Net, as in the popular PyTorch repository: cross entropy plus a Dice loss of the whole batch, and the IoU of the
whole test set from sums. Dice couples the samples of a batch."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1),
            nn.GroupNorm(2, out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels=1, n_classes=2):
        super().__init__()
        self.inc = DoubleConv(n_channels, 4)
        self.down = nn.Sequential(nn.MaxPool2d(2), DoubleConv(4, 8))
        self.up = nn.ConvTranspose2d(8, 4, kernel_size=2, stride=2)
        self.conv = DoubleConv(8, 4)
        self.outc = nn.Conv2d(4, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.up(self.down(x1))
        return self.outc(self.conv(torch.cat([x1, x2], dim=1)))


class Circles(Dataset):
    def __init__(self, num, seed):
        generator = torch.Generator().manual_seed(seed)
        at = torch.rand(num, 3, generator=generator)
        grid = torch.arange(8.0) / 8
        far = (grid[None, :, None] - at[:, 0, None, None]) ** 2 + (grid[None, None, :] - at[:, 1, None, None]) ** 2
        self.masks = (far < (0.3 + 0.3 * at[:, 2, None, None]) ** 2).long()
        self.images = self.masks[:, None] + 0.7 * torch.randn(num, 1, 8, 8, generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"image": self.images[index], "mask": self.masks[index]}


def model():
    return UNet()


def train_data():
    return Circles(38, 1)


def test_data():
    return Circles(17, 2)


def forward(model, batch):
    return model(batch["image"])


def dice_loss(probabilities, target, epsilon=1e-6):
    inter = 2 * (probabilities * target).sum()
    sets_sum = probabilities.sum() + target.sum()
    return 1 - (inter + epsilon) / (sets_sum + epsilon)


def loss(outputs, batch):
    foreground = outputs.softmax(dim=1)[:, 1]
    return F.cross_entropy(outputs, batch["mask"]) + dice_loss(foreground, batch["mask"].to(outputs.dtype))


def score(outputs, batch):
    found, there = outputs.argmax(dim=1) == 1, batch["mask"] == 1
    return {"intersection": (found & there).sum(), "union": (found | there).sum()}


def score_of(sums):
    return {"iou": float(sums["intersection"]) / max(1.0, float(sums["union"]))}
