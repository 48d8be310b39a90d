"""Metric learning with triplets, as in the face-embedding tutorials: a siamese network, anchors, positives, negatives."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset


class TripletDataset(Dataset):
    def __init__(self, num, seed):
        generator = torch.Generator().manual_seed(seed)
        people = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
        self.triplets = []
        for _ in range(num):
            one, step = torch.randint(6, (1,), generator=generator), torch.randint(1, 6, (1,), generator=generator)
            faces = people[torch.cat([one, one, (one + step) % 6])]
            self.triplets.append(faces + 0.4 * torch.randn(3, 8, generator=generator))

    def __len__(self):
        return len(self.triplets)

    def __getitem__(self, index):
        anchor, positive, negative = self.triplets[index]
        return anchor, positive, negative


class SiameseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding_net = nn.Sequential(nn.Linear(8, 12), nn.PReLU(), nn.Linear(12, 4))

    def get_embedding(self, x):
        return F.normalize(self.embedding_net(x), dim=1)

    def forward(self, anchor, positive, negative):
        return self.get_embedding(anchor), self.get_embedding(positive), self.get_embedding(negative)


criterion = nn.TripletMarginLoss(margin=0.5)


def model():
    return SiameseNet()


def train_data():
    return TripletDataset(44, 1)


def test_data():
    return TripletDataset(19, 2)


def forward(model, batch):
    return model(*batch)


def loss(outputs, batch):
    return criterion(*outputs)


def score(outputs, batch):
    anchor, positive, negative = outputs
    closer = (anchor - positive).norm(dim=1) < (anchor - negative).norm(dim=1)
    return {"accuracy": closer.float().mean()}
