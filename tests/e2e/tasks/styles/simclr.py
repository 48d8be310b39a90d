"""SimCLR as in the common repositories: NT-Xent over two augmented views of each image. `Drawn` makes the views where most people do, in
the data set and with torch's generator; `ByKey` makes them in `augment`, from the keys, so they are the same on any rank."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

couples = "batch"


def images(num, seed):
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randn(4, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    return kinds[torch.randint(4, (num,), generator=generator)] + 0.5 * torch.randn(num, 1, 6, 6, generator=generator)


class ContrastiveViews(Dataset):
    def __init__(self, num, seed):
        self.images = images(num, seed)

    def __len__(self):
        return len(self.images)

    def transform(self, image):
        if torch.rand(1) < 0.5:
            image = image.flip(-1)
        return image + 0.2 * torch.randn_like(image)

    def __getitem__(self, index):
        return [self.transform(self.images[index]) for _ in range(2)]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU())
        self.projector = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        return self.projector(self.backbone(x))


def nt_xent(z1, z2, temperature=0.5):
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    similarity = z @ z.T / temperature
    similarity = similarity.masked_fill(torch.eye(len(z), dtype=torch.bool, device=z.device), -9e15)
    n = len(z1)
    positives = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
    return F.cross_entropy(similarity, positives)


class Drawn:
    couples = "batch"

    def model(self):
        return Encoder()

    def train_data(self):
        return ContrastiveViews(40, 1)

    def test_data(self):  # fixed views
        x = images(18, 2)
        return x, x.flip(-1)

    def forward(self, model, batch):
        return model(batch[0]), model(batch[1])

    def loss(self, outputs, batch):
        return nt_xent(*outputs)

    def score_all(self, outputs, targets):
        near = F.normalize(outputs[0], dim=1) @ F.normalize(outputs[1], dim=1).T
        return {"top1": float((near.argmax(dim=1) == torch.arange(len(near))).double().mean())}


class ByKey(Drawn):
    def train_data(self):
        x = images(40, 1)
        return x, x

    def augment(self, batch, keys):
        views = []
        for offset, x in enumerate(batch):
            generators = [torch.Generator().manual_seed(int(key) + offset) for key in keys]
            noise = [torch.randn(x.shape[1:], generator=generator, dtype=x.dtype) for generator in generators]
            views.append(x + 0.2 * torch.stack(noise))
        return tuple(views)
