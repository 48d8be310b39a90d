"""Detection in the manner of SSD: two heads over fixed anchors, a dict of losses. `Torchvision` divides the boxes' loss by the positives of
the batch, as torchvision does; `Means` takes means over the samples."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

ANCHORS, CLASSES = 9, 3


class Shapes(Dataset):
    """An image, and as torchvision has it a dict of targets: a class for each anchor (0: nothing there) and a box."""

    def __init__(self, num, seed):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, CLASSES + 2, (num, ANCHORS), generator=generator) % CLASSES
        self.boxes = torch.rand(num, ANCHORS, 4, generator=generator)
        grid = self.labels.reshape(num, 1, 3, 3).repeat_interleave(2, dim=2).repeat_interleave(2, dim=3).float()
        self.images = grid + 0.3 * torch.randn(num, 1, 6, 6, generator=generator)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        return self.images[idx], {"boxes": self.boxes[idx], "labels": self.labels[idx]}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 6, 3, stride=2, padding=1), nn.ReLU())
        self.cls_head = nn.Conv2d(6, CLASSES, 1)
        self.reg_head = nn.Conv2d(6, 4, 1)

    def forward(self, images):
        features = self.backbone(images)
        return {
            "cls_logits": self.cls_head(features).flatten(2).transpose(1, 2),
            "bbox_regression": self.reg_head(features).flatten(2).transpose(1, 2),
        }


class Means:
    def model(self):
        return Detector()

    def train_data(self):
        return Shapes(40, 1)

    def test_data(self):
        return Shapes(17, 2)

    def loss(self, outputs, batch):
        _, targets = batch
        return {
            "classification": F.cross_entropy(outputs["cls_logits"].transpose(1, 2), targets["labels"]),
            "bbox_regression": F.smooth_l1_loss(outputs["bbox_regression"], targets["boxes"]),
        }

    def score(self, outputs, batch):
        _, targets = batch
        there = targets["labels"] > 0
        hits = (outputs["cls_logits"].argmax(dim=-1) == targets["labels"]) & there
        away = (outputs["bbox_regression"] - targets["boxes"]).abs().mean(dim=-1)
        return {"recall": (hits.sum(), there.sum()), "box_mae": ((away * there).sum(), there.sum())}


class Torchvision(Means):
    def loss(self, outputs, batch):
        _, targets = batch
        foreground = targets["labels"] > 0
        n = foreground.sum().clamp(min=1)
        boxes = F.smooth_l1_loss(outputs["bbox_regression"][foreground], targets["boxes"][foreground], reduction="sum")
        classes = F.cross_entropy(outputs["cls_logits"].flatten(0, 1), targets["labels"].flatten(), reduction="sum")
        return {"classification": classes / n, "bbox_regression": boxes / n}
