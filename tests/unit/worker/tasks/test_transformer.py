"""The small GPT: an untrained one knows nothing, none looks ahead, heads can be cut apart, and it learns."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from torch.nn import functional

from paceline.base.errors import BadInput, RunFailed
from paceline.worker.tasks.transformer import Block, Transformer


def small(**given: int) -> Transformer:
    sizes: dict[str, Any] = {"layers": 1, "heads": 2, "width": 16, "context": 12, "num_train": 40, "num_test": 10}
    return Transformer(**{**sizes, **given})


def test_an_untrained_model_has_the_loss_of_a_guess() -> None:
    torch.manual_seed(0)
    task = Transformer(num_train=16, num_test=1)
    batch = task.train_data()
    total, count = task.loss(task.model()(batch[0]), batch)
    assert count == 16 * 64
    assert float(total.detach()) / count == pytest.approx(math.log(256), abs=0.1)


def test_loss_and_scores_are_sums_over_bytes() -> None:
    torch.manual_seed(0)
    task = small()
    inputs, targets = task.train_data()
    batch = inputs[:3], targets[:3]
    outputs = task.model()(batch[0]).detach()
    total, count = task.loss(outputs, batch)
    one_by_one = sum(functional.cross_entropy(outputs[i, t], batch[1][i, t]) for i in range(3) for t in range(12))
    assert count == 36 and float(total) == pytest.approx(float(one_by_one), rel=1e-5)
    score = task.score(outputs, batch)
    assert list(score) == ["accuracy", "bits_per_byte"]
    assert float(score["bits_per_byte"][0]) == pytest.approx(float(total) / math.log(2), rel=1e-5)
    assert score["accuracy"][1] == 36 and 0 <= int(score["accuracy"][0]) <= 36


def test_a_later_byte_changes_no_earlier_answer() -> None:
    torch.manual_seed(0)
    task = small(layers=2)
    model = task.model()
    tokens = task.train_data()[0][:2].clone()
    before = model(tokens).detach()
    tokens[:, 7] = (tokens[:, 7] + 1) % 256
    after = model(tokens).detach()
    assert torch.equal(before[:, :7], after[:, :7])
    assert (before[:, 7:] != after[:, 7:]).any(dim=-1).all()


def test_samples_are_the_next_byte_and_no_test_byte_is_trained_on(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(13 * 9)))
    task = Transformer(data=str(tmp_path), context=12, num_train=5, num_test=3)
    train, test = task.train_data(), task.test_data()
    assert torch.equal(train[0][:, 1:], train[1][:, :-1])
    assert torch.equal(train[0] + 1, train[1])
    seen = {int(value) for part in train for value in part.flatten()}
    asked = {int(value) for part in test for value in part.flatten()}
    assert seen == set(range(13 * 5)) and asked == set(range(13 * 6, 13 * 9))
    with pytest.raises(BadInput, match=r"has 9 windows of 13 bytes, fewer than num_train=8 and num_test=3"):
        Transformer(data=str(tmp_path), context=12, num_train=8, num_test=3).train_data()


def test_generated_test_text_is_its_own(tmp_path: Path) -> None:
    few, many = small(num_train=5), small(num_train=50)
    assert torch.equal(few.test_data()[0], many.test_data()[0])
    assert torch.equal(few.train_data()[0], many.train_data()[0][:5])
    assert not torch.equal(few.train_data()[0], few.test_data()[0][:5])


def test_it_learns() -> None:
    torch.manual_seed(0)
    task = small(width=32, num_train=32)
    model, batch = task.model(), task.train_data()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses: list[float] = []
    for _ in range(30):
        total, count = task.loss(model(batch[0]), batch)
        optimizer.zero_grad()
        (total / count).backward()
        optimizer.step()
        losses.append(float(total.detach()) / count)
    assert losses[0] > 5.4 and losses[-1] < 2.5


def test_units_and_plan_name_modules_of_the_model() -> None:
    task = small(layers=3)
    model = task.model()
    assert [type(unit) for unit in task.units(model)] == [Block] * 3
    plan = task.tensor_plan(model)
    kinds = {name: type(style).__name__ for name, style in plan.items()}
    assert len(kinds) == 18
    for number in range(3):
        by_outputs = {name for name, kind in kinds.items() if kind == "ColwiseParallel" and f".{number}." in name}
        assert by_outputs == {f"blocks.{number}.{name}" for name in ("query", "key", "value", "up")}
    for name in plan:
        assert isinstance(model.get_submodule(name), torch.nn.Linear)


def test_a_block_cut_in_two_is_the_block() -> None:
    """What sharding=tensor does, by hand: half the heads each, the results of `out` summed; its bias counts once."""
    torch.manual_seed(0)
    whole, x = Block(16, 4), torch.randn(2, 5, 16)
    given: list[torch.Tensor] = []  # what `out` makes of the heads, in the whole block and in each half

    def keep(_module: Any, _inputs: Any, found: Any) -> None:
        given.append(found.detach())

    whole.out.register_forward_hook(keep)
    whole(x)
    for half in (0, 1):
        part = Block(16, 4)
        part.load_state_dict(whole.state_dict())
        part.out.register_forward_hook(keep)
        for layer in (part.query, part.key, part.value, part.up):
            layer.weight = torch.nn.Parameter(layer.weight.chunk(2)[half])
            layer.bias = torch.nn.Parameter(layer.bias.chunk(2)[half])
        for layer in (part.out, part.down):
            layer.weight = torch.nn.Parameter(layer.weight.chunk(2, dim=1)[half])
            layer.bias = torch.nn.Parameter(layer.bias / 2)
        part(x)
    assert torch.allclose(given[1] + given[2], given[0], atol=1e-6)
    assert not torch.allclose(given[1], given[2], atol=1e-3)


def test_heads_that_cannot_be_cut_evenly() -> None:
    with pytest.raises(RunFailed, match="no whole number of heads of 4"):
        Block(16, 4)._heads(torch.zeros(1, 2, 6))


def test_arguments_that_cannot_be() -> None:
    with pytest.raises(BadInput) as caught:
        Transformer(layers=0, num_test=0)
    assert len(caught.value.problems) == 2
    with pytest.raises(BadInput, match="width=10 with heads=4"):
        Transformer(width=10)
