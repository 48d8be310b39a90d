"""What people keep data in, as a feed: the batches it gives, and what is refused by name. pandas, polars and datasets are optional for a
user; here they are installed."""

from __future__ import annotations

from typing import Any

import datasets
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from paceline.base.errors import RunFailed
from paceline.worker.tasks.feed import TensorFeed, batches
from paceline.worker.tasks.given import given, make_feed
from paceline.worker.tasks.order import Piece

X = np.arange(10.0).reshape(5, 2)
Y = np.array([0, 1, 0, 1, 1], dtype=np.int32)
FRAME = pd.DataFrame({"a": X[:, 0].astype(int), "b": X[:, 1]})
POLARS = pl.DataFrame({"a": X[:, 0].astype(int), "b": X[:, 1]})


def feed_of(data: Any, **more: Any) -> Any:
    return make_feed(data, what="t.py: train_data()", collate=None, **more)


def batch_of(data: Any) -> Any:
    """Of samples 4 and 1."""
    return next(iter(batches(feed_of(data), [Piece(np.array([4, 1]), 2)])))


@pytest.mark.parametrize(
    "data",
    [
        (X, Y), [X, Y], (torch.tensor(X), torch.tensor(Y)), (X.tolist(), Y.tolist()), (FRAME, pd.Series(Y)),
        (FRAME, pd.Series(Y, dtype="Int64")), (POLARS, pl.Series(Y)), (FRAME, Y.tolist()), TensorDataset(torch.tensor(X), torch.tensor(Y)),
        ([torch.tensor(row) for row in X], Y), Subset(TensorDataset(torch.tensor(X), torch.tensor(Y)), range(5)),
        DataLoader(TensorDataset(torch.tensor(X), torch.tensor(Y)), batch_size=2),
    ],
    ids=lambda data: type(data).__name__,
)  # fmt: skip
def test_inputs_and_targets(data: Any) -> None:
    x, y = batch_of(data)
    assert x.tolist() == [[8.0, 9.0], [2.0, 3.0]] and x.is_floating_point()
    assert y.tolist() == [1, 1] and y.dtype == torch.int64
    assert isinstance(feed_of(data), TensorFeed), "as fast as tensors"


@pytest.mark.parametrize(
    "data", [{"x": X, "y": Y}, FRAME.assign(label=Y), POLARS.with_columns(label=pl.Series(Y))], ids=["arrays", "pandas", "polars"]
)  # fmt: skip
def test_named_columns_are_a_named_batch(data: Any) -> None:
    batch = batch_of(data)
    (*_, target) = batch
    assert isinstance(feed_of(data), TensorFeed) and list(batch) in (["x", "y"], ["a", "b", "label"])
    assert batch[target].tolist() == [1, 1] and batch[target].dtype == torch.int64
    assert batch["x" if "x" in batch else "a"].flatten()[0] == 8


def test_named_inputs_beside_targets() -> None:
    inputs, targets = batch_of(({"left": X, "right": X[:, 0]}, Y))
    assert inputs["right"].tolist() == [8.0, 2.0] and targets.tolist() == [1, 1]


def test_inputs_alone_are_the_batch() -> None:
    assert batch_of(X).tolist() == [[8.0, 9.0], [2.0, 3.0]]


def test_words_and_sequences_of_different_lengths_stay_lists() -> None:
    words, targets = batch_of((["a", "b", "c", "d", "e"], Y))
    assert list(words) == ["e", "b"] and targets.tolist() == [1, 1]
    longer = make_feed(([[1], [2, 3], [4], [5], [6, 7, 8]], Y), what="", collate=list)
    assert next(iter(batches(longer, [Piece(np.array([4, 1]), 2)]))) == [([6, 7, 8], 1), ([2, 3], 1)]


def test_a_list_or_tuple_of_samples_is_a_dataset() -> None:
    for samples in ([(row, 1) for row in X], tuple((row, 1) for row in X)):
        x, y = batch_of(samples)
        assert x.tolist() == [[8.0, 9.0], [2.0, 3.0]] and y.tolist() == [1, 1]


def test_a_dataset_of_hugging_face_gives_tensors() -> None:
    data = datasets.Dataset.from_dict({"x": X.tolist(), "labels": Y.tolist(), "text": list("abcde")})
    batch = batch_of(data)
    assert batch["x"].tolist() == [[8.0, 9.0], [2.0, 3.0]] and batch["labels"].tolist() == [1, 1]
    assert batch["text"] == ["e", "b"]
    stream = feed_of(data.to_iterable_dataset(), most=4)
    (batch,) = batches(stream, [Piece(np.arange(4), 4)])
    assert (stream.num, stream.ends) == (4, False) and batch["labels"].tolist() == [0, 1, 0, 1]


def test_the_targets_type_is_kept_by_who_said_one() -> None:
    data = datasets.Dataset.from_dict({"x": [[1], [2]]}).with_format("numpy")
    assert isinstance(feed_of(data).dataset[0]["x"], np.ndarray)


ROWS = TensorDataset(torch.tensor(X), torch.tensor(Y))
BACKWARDS = type("Backwards", (SequentialSampler,), {"__iter__": lambda self: iter([4, 3, 2, 1, 0])})


def test_what_a_loader_asks_for_is_the_default_of_settings() -> None:
    taken = given(DataLoader(ROWS, batch_size=3, shuffle=True, drop_last=True), "train_data()")
    assert taken.asks == {"batch": 3, "shuffle": True} and "drop_last=True, which is not used" in taken.notes[0][1]
    taken = given(DataLoader(ROWS, batch_size=2, collate_fn=len), "train_data()")
    assert taken.asks == {"batch": 2, "shuffle": False} and taken.notes == () and taken.collate is len
    taken = given(DataLoader(ROWS, batch_size=2, sampler=SubsetRandomSampler([3, 1])), "train_data()")
    assert [int(row[1]) for row in taken.data] == [1, 1] and taken.asks["shuffle"] is True


REFUSED = {
    "weights": (DataLoader(ROWS, sampler=WeightedRandomSampler(torch.ones(5), 5)), r"a sampler of its own \(WeightedRandomSampler\)"),
    "with replacement": (DataLoader(ROWS, sampler=RandomSampler(ROWS, replacement=True)), r"a sampler of its own \(RandomSampler\)"),
    "fewer": (DataLoader(ROWS, sampler=RandomSampler(ROWS, num_samples=2)), "a sampler of its own"),
    "an order of its own": (DataLoader(ROWS, sampler=BACKWARDS(ROWS)), r"a sampler of its own \(Backwards\)"),
    "batches of its own": (DataLoader(ROWS, batch_sampler=BatchSampler(RandomSampler(ROWS), 2, False)), "batch sampler of its own"),
    "whole batches": (DataLoader(ROWS, batch_size=None), "batch sampler of its own"),
    "words as inputs": ((FRAME.assign(name="x"), Y), "columns that are no numbers: name"),
    "missing in pandas": ((FRAME, pd.Series([1.0, None, 2.0, 3.0, 4.0])), r"has missing values \(1\)"),
    "missing by name": (FRAME.assign(b=[1.0, None, None, 3.0, 4.0]), r"\['b'\] has missing values \(2\)"),
    "missing in polars": (POLARS.with_columns(b=pl.Series([1, None, 2, 3, 4])), r"\['b'\] has missing values \(1\)"),
    "dates": ((pd.Series(pd.to_datetime(["2020-01-01"] * 5)), Y), "dates or times"),
    "all splits": (datasets.DatasetDict({"train": datasets.Dataset.from_dict({"x": [1]})}), r"all splits \(train\); return one"),
    "different lengths": ({"x": X, "y": Y[:3]}, "different lengths: 5, 3"),
    "nothing": (FRAME[:0], "no samples"),
    "an empty dict": ({}, "returned a dict; it must return"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_be_a_guess_is_refused_by_name(name: str) -> None:
    data, said = REFUSED[name]
    with pytest.raises(RunFailed, match=said):
        feed_of(data)


class Endless(IterableDataset):
    def __init__(self, num: int) -> None:
        self.num = num

    def __iter__(self) -> Any:
        return iter(range(self.num))


def test_a_stream_without_a_length_has_as_many_samples_as_the_steps_take() -> None:
    with pytest.raises(RunFailed, match="without a length: define __len__"):
        feed_of(Endless(9))
    (batch,) = batches(feed_of(Endless(9), most=4), [Piece(np.arange(4), 4)])
    assert batch.tolist() == [0, 1, 2, 3]
    with pytest.raises(RunFailed, match="ended after 9 samples, and the run's steps need 12: give it a __len__"):
        list(batches(feed_of(Endless(9), most=12), [Piece(np.arange(12), 12)]))
