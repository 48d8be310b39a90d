"""Losses and scores that are no figures."""

from __future__ import annotations

import torch
from good import Good


class LossIsText(Good):
    def loss(self, outputs, batch):
        return "small"


class LossIsVector(Good):
    def loss(self, outputs, batch):
        return outputs.sum(dim=1)


class LossHasNoGradient(Good):
    def loss(self, outputs, batch):
        return outputs.detach().mean()


class LossIsNan(Good):
    def loss(self, outputs, batch):
        return outputs.mean() * float("nan")


class ScoreIsInfinite(Good):
    def score(self, outputs, batch):
        return {"gain": (float("inf"), 1)}


class ScoreIsText(Good):
    def score(self, outputs, batch):
        return {"grade": "good"}


class NoUsualLoss(Good):
    def forward(self, model, batch):
        return {"logits": model(batch[0])}


class OwnScore(Good):
    """A score of its own, without saying which way it is good."""

    def score(self, outputs, batch):
        return {"margin": outputs.mean()}


class Diverges(Good):
    def loss(self, outputs, batch):
        return torch.exp(outputs.square().sum() * 1e6)
