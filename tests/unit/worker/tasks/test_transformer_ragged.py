"""Windows of different lengths: a padded batch is worth what its windows are worth alone, in loss, scores and gradients."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.base.errors import BadInput
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.order import Piece
from paceline.worker.tasks.transformer import Transformer

Pairs = list[tuple[Tensor, Tensor]]


def small(**given: Any) -> Transformer:
    sizes = {"layers": 2, "heads": 2, "width": 16, "context": 24, "num_train": 40, "num_test": 10, "ragged": True}
    return Transformer(**{**sizes, **given})


def windows(task: Transformer, num: int) -> Pairs:
    data: Any = task.train_data()
    return [data[index] for index in range(num)]


def double(task: Transformer) -> nn.Module:
    torch.manual_seed(0)
    return task.model().double()


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    names, parameters = zip(*model.named_parameters(), strict=True)
    return dict(zip(names, torch.autograd.grad(loss, parameters), strict=True))


def test_windows_are_the_even_ones_ended_early() -> None:
    even: Any = small(ragged=False).train_data()
    found = windows(small(), 40)
    for index, (inputs, targets) in enumerate(found):
        assert len(inputs) == len(targets)
        assert torch.equal(inputs, even[0][index, : len(inputs)])
        assert torch.equal(targets, even[1][index, : len(targets)])
    lengths = {len(inputs) for inputs, _ in found}
    assert min(lengths) >= 8 and max(lengths) <= 24 and len(lengths) > 8


def test_lengths_reach_both_ends_and_depend_on_nothing_but_the_place() -> None:
    lengths: list[int] = [len(pair[0]) for pair in windows(small(num_train=400), 400)]
    assert (min(lengths), max(lengths)) == (8, 24)
    torch.manual_seed(7)
    assert [len(pair[0]) for pair in windows(small(num_train=40), 40)] == lengths[:40]
    test: Any = small().test_data()
    assert [len(test[index][0]) for index in range(10)] != lengths[:10]


def test_of_files_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(25 * 9)))
    found = windows(small(data=str(tmp_path), num_train=5, num_test=3), 5)
    assert [int(inputs[0]) for inputs, _ in found] == [0, 25, 50, 75, 100]
    assert all(torch.equal(inputs + 1, targets) for inputs, targets in found)


def test_a_batch_is_padded_to_its_longest() -> None:
    task = small()
    pairs = windows(task, 5)
    inputs, targets = task.collate(pairs)
    longest = max(len(pair[0]) for pair in pairs)
    assert inputs.shape == targets.shape == (5, longest)
    for row, pair in enumerate(pairs):
        num = len(pair[0])
        assert torch.equal(inputs[row, :num], pair[0]) and torch.equal(targets[row, :num], pair[1])
        assert (inputs[row, num:] == 0).all() and (targets[row, num:] == -100).all()


def test_a_run_gets_its_batches_that_way() -> None:
    task = small()
    feed = make_feed(task.train_data(), what="train_data()", collate=task.collate)
    ids = torch.tensor([3, 1]).numpy()
    batch = feed.walk([Piece(ids, 2)]).take(0)
    expected = task.collate([windows(task, 4)[index] for index in (3, 1)])
    assert all(torch.equal(one, other) for one, other in zip(batch, expected, strict=True))


def test_a_padded_batch_is_worth_its_windows_alone() -> None:
    """The plain definition, window by window without padding: loss, its gradients, and both scores."""
    task = small()
    model, pairs = double(task), windows(task, 6)
    batch = task.collate(pairs)
    outputs = model(batch[0])
    total, count = task.loss(outputs, batch)
    alone = [model(inputs[None])[0] for inputs, _ in pairs]
    losses = [functional.cross_entropy(logits, targets) for logits, (_, targets) in zip(alone, pairs, strict=True)]
    right = [float((logits.argmax(1) == pair[1]).double().mean()) for logits, pair in zip(alone, pairs, strict=True)]
    mean = torch.stack(losses).mean()
    assert count == 6 and float(total.detach()) / 6 == pytest.approx(float(mean.detach()), rel=1e-12)
    score = task.score(outputs, batch)
    assert list(score) == ["accuracy", "bits_per_byte"]
    assert float(score["accuracy"][0]) / score["accuracy"][1] == pytest.approx(sum(right) / 6, rel=1e-12)
    bits = float(score["bits_per_byte"][0]) / score["bits_per_byte"][1]
    assert bits == pytest.approx(float(mean.detach()) / math.log(2), rel=1e-12)
    expected = gradients(model, mean)
    for name, found in gradients(model, total / count).items():
        assert torch.allclose(found, expected[name], rtol=1e-9, atol=1e-14), name


def test_parts_that_pad_to_other_lengths_add_up() -> None:
    task = small()
    model, pairs = double(task), sorted(windows(task, 8), key=lambda pair: len(pair[0]))
    whole, parts = task.collate(pairs), [task.collate(pairs[:3]), task.collate(pairs[3:])]
    assert parts[0][0].shape[1] < parts[1][0].shape[1]
    total, count = task.loss(model(whole[0]), whole)
    found = [task.loss(model(part[0]), part) for part in parts]
    assert sum(number for _, number in found) == count
    assert sum(float(part.detach()) for part, _ in found) == pytest.approx(float(total.detach()), rel=1e-12)


def test_what_stands_in_the_padding_changes_nothing() -> None:
    """Neither loss nor gradients: no byte looks ahead, and a padded place is no target."""
    task = small()
    model, pairs = double(task), windows(task, 6)
    inputs, targets = task.collate(pairs)
    other = torch.where(targets == -100, 201, inputs)
    assert not torch.equal(inputs, other)
    losses = [task.loss(model(given), (given, targets))[0] for given in (inputs, other)]
    assert torch.equal(losses[0], losses[1])
    before, after = (gradients(model, loss) for loss in losses)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_without_padding_it_is_the_usual_loss() -> None:
    ragged, even = small(context=8), small(context=8, ragged=False)
    model, data = double(ragged), even.train_data()
    assert isinstance(data, tuple)
    batch = ragged.collate(windows(ragged, 4))
    assert torch.equal(batch[0], data[0][:4])
    outputs = model(batch[0])
    (total, count), (usual, num) = ragged.loss(outputs, batch), even.loss(outputs, batch)
    assert float((total / count).detach()) == pytest.approx(float((usual / num).detach()), rel=1e-12)


def test_a_context_shorter_than_the_shortest_window() -> None:
    with pytest.raises(BadInput, match="context=7 with ragged=true: windows have 8 bytes up to context"):
        small(context=7)
    assert small(context=7, ragged=False).context == 7
