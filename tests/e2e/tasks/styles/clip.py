"""CLIP: two encoders, a learned logit scale, a symmetric contrastive loss. `OpenClip` returns the scale with the features, as open_clip
does; `InTheLoss` has it in the loss, which is a module with a parameter; `OpenAI` returns the matrix of logits, as OpenAI's model does."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def pairs(num, seed):
    generator = torch.Generator().manual_seed(seed)
    meaning = torch.randn(num, 3, generator=generator)
    to = torch.randn(3, 9, generator=torch.Generator().manual_seed(0))
    words = (meaning * 4 + 6).long().clamp(0, 11) + 12 * torch.arange(3)
    return meaning @ to + 0.3 * torch.randn(num, 9, generator=generator), words


class CLIP(nn.Module):
    def __init__(self, embed_dim=5):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(9, 12), nn.GELU(), nn.Linear(12, embed_dim))
        self.token_embedding = nn.Embedding(36, 8)
        self.text_projection = nn.Linear(8, embed_dim)

    def encode(self, image, text):
        image_features = F.normalize(self.visual(image), dim=-1)
        text_features = F.normalize(self.text_projection(self.token_embedding(text).mean(dim=1)), dim=-1)
        return image_features, text_features

    forward = encode


class WithScale(CLIP):
    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, image, text):
        return *self.encode(image, text), self.logit_scale.exp()


class WithLogits(WithScale):
    def forward(self, image, text):
        image_features, text_features, scale = super().forward(image, text)
        return scale * image_features @ text_features.T


def clip_loss(logits):
    labels = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


class ClipLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, outputs, batch):
        image_features, text_features = outputs
        return clip_loss(self.logit_scale.exp() * image_features @ text_features.T)


class InTheLoss:
    def __init__(self):
        self.loss = ClipLoss()

    def model(self):
        return CLIP()

    def train_data(self):
        return pairs(41, 1)

    def test_data(self):
        return pairs(18, 2)

    def forward(self, model, batch):
        return model(*batch)

    def score_all(self, outputs, targets):
        similarity = outputs[0] @ outputs[1].T
        return {"recall@1": (similarity.argmax(dim=1) == torch.arange(len(similarity))).double().mean()}


class OpenClip(InTheLoss):
    def __init__(self):
        pass

    def model(self):
        return WithScale()

    def loss(self, outputs, batch):
        image_features, text_features, logit_scale = outputs
        return clip_loss(logit_scale * image_features @ text_features.T)

    score_all = None

    def score(self, outputs, batch):
        return {"near": (outputs[0] * outputs[1]).sum(dim=1).mean()}


class OpenAI(OpenClip):
    def model(self):
        return WithLogits()

    def loss(self, outputs, batch):
        return clip_loss(outputs)

    score = None
