import torch


def points(num, seed):
    x = torch.randn(num, 2, generator=torch.Generator().manual_seed(seed))
    return x, (x.norm(dim=1) > 1.18).long()


def model(hidden: int = 32):
    return torch.nn.Sequential(torch.nn.Linear(2, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 2))


def train_data():
    return points(4000, seed=1)


def test_data():
    return points(1000, seed=2)
