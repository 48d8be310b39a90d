"""Sparse gradients: which update can use them, what it does with the rows nobody used, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.optim import build as optim
from paceline.worker.optim.rates import Rates
from paceline.worker.optim.schedule import Rate
from paceline.worker.optim.sparse import gradient_rows, sparse_parameters


def spec(**asked: Any) -> Spec:
    return Spec.model_validate(
        {"task": "recommender", "weight_decay": 0.0, "update": "single", "lr": 0.1, "steps": 9, **asked}
    )


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Embedding(9, 2, sparse=True), nn.Linear(2, 1))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, ids: list[int]) -> None:
    optimizer.zero_grad()
    model(torch.tensor(ids)).sum().backward()
    optimizer.step()


def test_tables_that_were_made_so_are_found() -> None:
    model = net()
    assert sparse_parameters(model) == [model[0].weight]
    model[0].weight.requires_grad_(False)
    assert sparse_parameters(model) == []
    assert sparse_parameters(nn.Embedding(3, 2)) == []


def test_numbers_are_the_sums_and_can_be_changed() -> None:
    model = net()
    model(torch.tensor([4, 1, 4])).sum().backward()
    found = gradient_rows(model[0].weight)
    assert found is not None and found.shape == (2, 2), "row 4 once"
    found.mul_(0)
    assert float(model[0].weight.grad.to_dense().abs().sum()) == 0
    assert gradient_rows(nn.Parameter(torch.zeros(1))) is None


@pytest.mark.parametrize("update", ["single", "foreach"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_rows_nobody_used_stay_as_they_are(optimizer: str, update: str) -> None:
    model = net()
    made = optim.build(model.parameters(), spec(optimizer=optimizer, update=update), sparse=sparse_parameters(model))
    before = model[0].weight.detach().clone(), model[1].weight.detach().clone()
    for _ in range(3):
        step(model, made, [2, 5, 2])
    moved = (model[0].weight.detach() - before[0]).abs().sum(1) > 0
    assert moved.nonzero().flatten().tolist() == [2, 5]
    assert not model[1].weight.equal(before[1])
    assert optim.way(made) == update


def test_adam_has_a_lazy_one_beside_it() -> None:
    """Each does what torch's own does, under one rate and with one state."""
    model, theirs = net(), net()
    made = optim.build(model.parameters(), spec(optimizer="adam"), sparse=sparse_parameters(model))
    assert optim.classes(made) == {"class": "Adam", "sparse": "SparseAdam"}
    Rates(made, lambda _: Rate(0.02, None), made.param_groups[0]["lr"]).set(0)
    wanted = [torch.optim.SparseAdam([theirs[0].weight], lr=0.02), torch.optim.Adam(theirs[1].parameters(), lr=0.02)]
    for ids in ([1, 2], [2, 7], [0, 0]):
        step(model, made, ids)
        theirs.zero_grad()
        theirs(torch.tensor(ids)).sum().backward()
        for one in wanted:
            one.step()
    assert all(ours.equal(other) for ours, other in zip(model.parameters(), theirs.parameters(), strict=True))
    assert made.state.keys() == set(model.parameters())
    assert all(group["lr"] == 0.02 for group in made.param_groups)
    made.zero_grad()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_of_nothing_else() -> None:
    model = nn.Embedding(4, 2, sparse=True)
    made = optim.build(model.parameters(), spec(optimizer="adam"), sparse=sparse_parameters(model))
    assert optim.classes(made) == {"class": "SparseAdam"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"optimizer": "rmsprop"}, "optimizer=rmsprop"), ({"optimizer": "adamw"}, "optimizer=adamw"),
        ({"weight_decay": 0.1}, "weight_decay=0.1"), ({"optimizer": "sgd", "momentum": 0.9}, "momentum=0.9"),
        ({"optimizer": "sgd", "update": "fused"}, "update=fused"), ({"sharding": "ddp"}, "sharding=ddp"),
        ({"graph": "compile"}, "graph=compile"), ({"wrap": "accelerate"}, "wrap=accelerate"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_a_sentence(asked: dict[str, Any], said: str) -> None:
    model = net()
    with pytest.raises(RunFailed, match=f"{said}.*sparse gradients|sparse gradients.*{said}") as caught:
        optim.build(model.parameters(), spec(**asked), sparse=sparse_parameters(model))
    assert caught.value.kind == "mismatch"
    optim.build(net().parameters(), spec(**asked))  # without a sparse one it is nobody's business
