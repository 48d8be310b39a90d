"""Classification of graphs without a library, in the manner of PyTorch Geometric: a batch is one large graph, with the number of its graph
for each node. Tensors of a batch have no row a sample."""

import torch
from torch import nn
from torch.utils.data import Dataset


class Graphs(Dataset):
    def __init__(self, num, seed):
        generator = torch.Generator().manual_seed(seed)
        self.graphs = []
        for _ in range(num):
            nodes = int(torch.randint(3, 7, (1,), generator=generator))
            edges = torch.randint(nodes, (2, 2 * nodes), generator=generator)
            x = torch.randn(nodes, 4, generator=generator)
            self.graphs.append((x, edges, int(x[edges[0], 0].sum() > 0)))

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        return self.graphs[index]


def collate(graphs):
    offsets = torch.tensor([0] + [len(x) for x, _, _ in graphs[:-1]]).cumsum(0)
    return {
        "x": torch.cat([x for x, _, _ in graphs]),
        "edge_index": torch.cat([edges + offset for (_, edges, _), offset in zip(graphs, offsets, strict=True)], dim=1),
        "batch": torch.cat([torch.full((len(x),), index) for index, (x, _, _) in enumerate(graphs)]),
        "y": torch.tensor([label for _, _, label in graphs]),
    }


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin1, self.lin2, self.out = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 2)

    def propagate(self, x, edge_index):
        source, target = edge_index
        return x + torch.zeros_like(x).index_add(0, target, x[source])

    def forward(self, x, edge_index, batch, num_graphs):
        x = self.lin1(self.propagate(x, edge_index)).relu()
        x = self.lin2(self.propagate(x, edge_index)).relu()
        return self.out(x.new_zeros(num_graphs, 8).index_add(0, batch, x))


def model():
    return GCN()


def train_data():
    return Graphs(40, 1)


def test_data():
    return Graphs(17, 2)


def forward(model, batch):
    return model(batch["x"], batch["edge_index"], batch["batch"], len(batch["y"]))


def loss(outputs, batch):
    return nn.functional.cross_entropy(outputs, batch["y"])


def score(outputs, batch):
    return {"accuracy": (outputs.argmax(dim=1) == batch["y"]).sum().item() / len(batch["y"])}
