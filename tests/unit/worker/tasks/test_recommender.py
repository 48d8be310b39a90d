"""Generated clicks: the same every time, skewed, learnable up to what the noise allows, and cheap however many rows there are."""

from __future__ import annotations

import hashlib
import tracemalloc

import numpy as np
import pytest
import torch
import torch._dynamo
from torch.nn import functional

from paceline.base.errors import BadInput
from paceline.worker.tasks.recommender import Recommender, generate


def test_clicks_are_the_same_on_every_machine() -> None:
    ids, dense, clicks, _ = generate(5_000, tables=3, rows=777, stream=1)
    digest = hashlib.sha256(ids.tobytes() + dense.tobytes() + clicks.tobytes()).hexdigest()
    assert digest[:16] == "c28fa0ac5b6e2d1e"


def test_shapes_and_types() -> None:
    ids, dense, clicks = Recommender(num_train=50, rows=10).train_data()
    assert (ids.shape, ids.dtype) == ((50, 4), torch.int64)
    assert (dense.shape, dense.dtype) == ((50, 4), torch.float32)
    assert (clicks.shape, clicks.dtype) == ((50,), torch.int64)
    assert ids.min() >= 0 and ids.max() < 10
    assert set(clicks.tolist()) == {0, 1}


def test_num_train_leaves_the_test_set_alone() -> None:
    small, large = (Recommender(num_train=num, num_test=50).test_data() for num in (10, 1_000))
    assert all(torch.equal(a, b) for a, b in zip(small, large, strict=True))
    assert not torch.equal(Recommender(num_train=50).train_data()[0], small[0])


def test_a_row_has_one_hidden_effect_wherever_it_turns_up() -> None:
    """Two samples with the same ids and numbers have the same score; another row another one."""
    _, _, _, scores = generate(2_000, tables=1, rows=5, stream=1)
    ids, dense, _, _ = generate(2_000, tables=1, rows=5, stream=1)
    own = scores - 0.5 * dense.sum(axis=1)
    effects = [own[ids[:, 0] == row] for row in range(5)]
    assert all(np.ptp(effect) < 1e-5 for effect in effects)
    assert len({round(float(effect.mean()), 4) for effect in effects}) == 5


def test_the_best_guess_is_the_stated_89_percent() -> None:
    _, _, clicks, scores = generate(50_000, tables=4, rows=1_000, stream=2)
    assert ((scores > 0) == clicks).mean() == pytest.approx(0.89, abs=0.005)
    assert 0.45 < clicks.mean() < 0.58


def test_few_rows_are_popular() -> None:
    ids, _, _, _ = generate(20_000, tables=2, rows=1_000, stream=1)
    counts = np.bincount(ids[:, 1], minlength=1_000)
    assert counts[0] > 15 * counts[100:].mean()
    assert counts[:100].sum() > 0.4 * counts.sum()


def test_ten_million_rows_need_no_table() -> None:
    tracemalloc.start()
    try:
        ids, *_ = generate(1_000, tables=4, rows=10_000_000, stream=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert ids.max() > 9_000_000
    assert peak < 2_000_000


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_are_sparse_when_asked(sparse: bool) -> None:
    task = Recommender(rows=20, num_train=8, sparse=sparse)
    ids, dense, clicks = task.train_data()
    model = task.model()
    functional.cross_entropy(model(ids, dense), clicks).backward()
    gradients = [table.grad for table in model.get_submodule("tables").parameters()]
    assert [gradient is not None and gradient.is_sparse for gradient in gradients] == [sparse] * 4


def test_the_model_is_the_same_for_the_same_seed() -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(Recommender(rows=30).model().state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    assert models[0]["tables.0.weight"].abs().max() <= 0.05
    assert not torch.equal(models[0]["tables.0.weight"], models[0]["tables.1.weight"])


def test_it_learns_beyond_what_the_plain_numbers_tell() -> None:
    torch.manual_seed(0)
    task = Recommender(rows=100, num_train=6_000, num_test=2_000)
    model, (ids, dense, clicks) = task.model(), task.train_data()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(2):
        for some in torch.arange(6_000).split(100):
            optimizer.zero_grad()
            functional.cross_entropy(model(ids[some], dense[some]), clicks[some]).backward()
            optimizer.step()
    ids, dense, clicks = task.test_data()
    accuracy = (model(ids, dense).argmax(dim=1) == clicks).float().mean().item()
    without = ((dense.sum(dim=1) > 0) == clicks).float().mean().item()  # all the numbers weigh the same
    assert accuracy > 0.8 > without + 0.05


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(BadInput) as caught:
        Recommender(data="somewhere", tables=0, rows=-1)
    assert len(caught.value.problems) == 3
    assert "data=somewhere: recommender generates its clicks" in caught.value.problems[-1]
