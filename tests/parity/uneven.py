"""A user's task with every unevenness at once: a prime number of samples, an unused layer, a loss that is a sum with a count of its own."""

import torch


class Uneven:
    def __init__(self, num_train: int = 157, num_test: int = 13):
        self.num_train, self.num_test = num_train, num_test

    def model(self):
        model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
        model.register_module("unused", torch.nn.Linear(2, 2))  # no gradient: weight decay must leave it alone
        return model

    def _data(self, seed, num):
        x = torch.randn(num, 6, generator=torch.Generator().manual_seed(seed))
        return x, (x.sum(dim=1) > 0).long() + (x[:, 0] > 1).long()

    def train_data(self):
        return self._data(0, self.num_train)

    def test_data(self):
        return self._data(1, self.num_test)

    def forward(self, model, batch):
        return model[2](model[1](model[0](batch[0])))

    def loss(self, outputs, batch):
        # Weighted by class, so that the divisor is not the number of samples: the mean of rank means would be wrong.
        weights = 1.0 + batch[1].to(outputs.dtype)
        each = torch.nn.functional.cross_entropy(outputs, batch[1], reduction="none")
        return (weights * each).sum(), weights.sum()
