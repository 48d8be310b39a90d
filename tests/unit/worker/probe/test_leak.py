"""Train and test are compared for samples in common: of tensors, Datasets and streams; whole, and where only a part is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, Subset, TensorDataset

from paceline.worker.probe import leak
from paceline.worker.probe.leak import in_common
from paceline.worker.tasks.feed import Feed
from paceline.worker.tasks.given import make_feed

ROWS = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(300) % 2


class Stream(IterableDataset[Any]):
    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Any]:
        return ((row, 0) for row in self.rows)


class Samples(TensorDataset):
    """As a Dataset of the user's own is: nobody knows what is in it."""


@pytest.fixture(autouse=True)
def time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is: what is looked at must not depend on it here."""
    monkeypatch.setattr(leak, "_BUDGET_S", 60.0)


def feed(data: Any) -> Feed:
    return make_feed(data, what="data", collate=None)


def of(kind: str, ids: Any, labels: torch.Tensor = LABELS) -> Feed:
    rows, targets = ROWS[ids], labels[ids]
    made = {"tensors": (rows, targets), "dataset": Samples(rows, targets), "stream": Stream(rows)}
    return feed(made[kind])


@pytest.mark.parametrize("train", ["tensors", "dataset", "stream"])
@pytest.mark.parametrize("test", ["tensors", "dataset", "stream"])
def test_duplicates_are_counted_whatever_their_targets_are(train: str, test: str) -> None:
    ((kind, text),) = in_common(of(train, range(200)), of(test, range(150, 250), 1 - LABELS))
    assert kind == "leak" and text.startswith("50 of 100 test samples have inputs that training samples have too, so")
    assert in_common(of(train, range(200)), of(test, range(200, 300))) == []


def test_inputs_of_few_values_are_named() -> None:
    bits = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).repeat(10, 1)
    ((_, text),) = in_common(feed((bits, LABELS[:20])), feed((bits[:3], LABELS[:3])))
    assert "3 of 3 test samples" in text and "(training has only 2 different inputs)" in text


def test_a_part_of_large_sets_is_looked_at_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leak, "_MOST_ROWS", 100)
    ((_, text),) = in_common(of("tensors", range(200)), of("tensors", range(200)))
    assert (
        "of 50 test samples looked at" in text and "; looked at 50 of 200 test and 50 of 200 training samples:" in text
    )


def test_a_short_look_at_subsets_begins_where_both_have_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leak, "_BUDGET_S", -1.0)  # one sample of each
    whole = Samples(ROWS, LABELS)
    one, other = Subset(whole, range(100)), Subset(whole, range(99, 300))
    ((_, text),) = in_common(feed(one), feed(other))
    assert text.startswith("1 of 1 test samples looked at") and "1 of 201 test and 1 of 100 training samples" in text


class Noisy(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        row, label = super().__getitem__(index)
        return row + torch.randn(3) * float(np.random.rand()), label


def test_what_a_sample_draws_is_the_same_in_both_sets_and_moves_no_stream() -> None:
    before = torch.get_rng_state()
    ((_, text),) = in_common(feed(Noisy(ROWS, LABELS)), feed(Noisy(ROWS[:10], LABELS[:10])))
    assert text.startswith("10 of 10 test samples")
    assert torch.equal(torch.get_rng_state(), before)


class Broken(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        raise ValueError("no such picture")


class Graphs(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return object(), 1


@pytest.mark.parametrize("kind", [Broken, Graphs])
def test_what_cannot_be_looked_at_is_left_alone(kind: Any) -> None:
    data = kind(ROWS, LABELS)
    assert in_common(feed(data), feed(data)) == []
