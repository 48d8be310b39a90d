"""A task that proves which samples were seen: every sample is its own id, and the scores are sums over ids."""

import torch
from torch.utils.data import Dataset, IterableDataset


class Ids(Dataset):
    def __init__(self, num):
        self.num = num

    def __len__(self):
        return self.num

    def __getitem__(self, index):
        return torch.tensor([float(index)]), torch.tensor(float(index))


class Stream(IterableDataset):
    def __init__(self, num):
        self.num = num

    def __len__(self):
        return self.num

    def __iter__(self):
        for index in range(self.num):
            yield torch.tensor([float(index)]), torch.tensor(float(index))


class Shuffling(Stream):
    """Draws its own order."""

    def __iter__(self):
        for index in torch.randperm(self.num).tolist():
            yield torch.tensor([float(index)]), torch.tensor(float(index))


class Counted:
    better = "lower"

    def __init__(self, num_train: int = 10, num_test: int = 5, kind: str = "tensors"):
        self.num_train, self.num_test, self.kind = num_train, num_test, kind

    def model(self):
        return torch.nn.Linear(1, 1)

    def _data(self, num):
        ids = torch.arange(num, dtype=torch.float32)
        return {"tensors": (ids[:, None], ids), "dataset": Ids(num), "stream": Stream(num), "shuffling": Shuffling(num)}[self.kind]

    def train_data(self):
        return self._data(self.num_train)

    def test_data(self):
        return self._data(self.num_test)

    def loss(self, outputs, batch):
        return (outputs * 1e-6).mean() + 1.0

    def score(self, outputs, batch):
        ids = batch[1].double()
        return {"id": (ids.sum(), len(ids)), "square": ((ids * ids).sum(), len(ids)), "few": (0.1 * len(ids), 0.05 * len(ids))}
