"""What ranks compare: the same data looks the same, other data does not, and what is different each time is left out."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, TensorDataset

from paceline.base.errors import RunFailed
from paceline.spec.inputs import Inputs
from paceline.spec.verdict import OTHER_DATA
from paceline.worker import same_data
from paceline.worker.same_data import Look, look, other_samples, same_pass, same_samples
from paceline.worker.tasks.feed import batches
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.order import Piece

ROWS = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(300)
WORLD: Any = type("OneOfTwo", (), {"size": 2, "rank": 1})()


class Samples(TensorDataset):
    """As a Dataset of the user's own is: nobody knows what is in it."""


class Drawn(TensorDataset):
    """`how`: with what it changes its rows."""

    def __init__(self, how: Any, labels: torch.Tensor = LABELS) -> None:
        super().__init__(ROWS, labels)
        self.how = how

    def __getitem__(self, index: int) -> Any:
        row, label = super().__getitem__(index)
        return row + self.how(), label


def seen(data: Any) -> Look:
    return look(make_feed(data, what="data", collate=None))


@pytest.mark.parametrize("most", [same_data._WHOLE_BYTES, 1200])
def test_tensors(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_data, "_WHOLE_BYTES", most)
    changed = ROWS.clone()
    changed[:200] += 1e-3
    assert not seen((ROWS, LABELS)).differs(seen((ROWS.clone(), LABELS.numpy())))
    assert seen((ROWS, LABELS)).differs(seen((changed, LABELS)))
    assert seen((ROWS, LABELS)).differs(seen((ROWS, LABELS.flip(0))))


def test_one_number_of_a_small_set_is_enough() -> None:
    changed = ROWS.clone()
    changed[137, 2] += 1
    assert seen((ROWS, LABELS)).differs(seen((changed, LABELS)))


def test_samples_of_a_dataset() -> None:
    before = torch.get_rng_state()
    found = seen(Samples(ROWS, LABELS))
    assert 1 <= len(found.samples) <= 64 and not found.differs(seen(Samples(ROWS, LABELS)))
    assert found.differs(seen(Samples(ROWS, LABELS.flip(0))))
    assert found.differs(seen(Samples(ROWS)))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("how", [lambda: torch.rand(()), np.random.rand, random.random])
def test_what_is_drawn_from_the_global_streams_is_compared(how: Any) -> None:
    found = seen(Drawn(how))
    assert all("" not in parts for parts in found.samples) and not found.differs(seen(Drawn(how)))
    assert found.differs(seen(Drawn(lambda: 0)))


def test_what_is_new_each_time_is_left_out_and_the_rest_is_compared() -> None:
    def own() -> Drawn:
        return Drawn(np.random.default_rng().random)

    found = seen(own())
    assert all(parts[0] == "" and parts[1] for parts in found.samples)
    assert not found.differs(seen(own()))
    assert found.differs(seen(Drawn(np.random.default_rng().random, LABELS.flip(0))))


def test_a_short_look_is_compared_as_far_as_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = seen(Samples(ROWS, LABELS))
    monkeypatch.setattr(same_data, "_BUDGET_S", -1.0)
    short = seen(Samples(ROWS, LABELS))
    assert len(short.samples) == 1 and not short.differs(whole) and not whole.differs(short)
    assert short.differs(seen(Samples(ROWS.flip(0), LABELS)))


class Broken(TensorDataset):
    def __getitem__(self, index: int) -> Any:
        raise ValueError("no such picture")


def test_what_raises_is_left_to_the_training() -> None:
    assert seen(Broken(ROWS)).samples == []


def test_the_sentence_names_the_rank_and_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {"train": Look([["a", "b"]]), "test": Look([["c"]])}
    monkeypatch.setattr(same_data, "agree", lambda value, world: (value, value))
    monkeypatch.setattr(same_data, "broadcast_json", lambda value, world: {"train": [["a", "b"]], "test": [["c"]]})
    same_samples(mine, WORLD, name="t.py")
    same_samples(None, WORLD, name="t.py")
    monkeypatch.setattr(same_data, "broadcast_json", lambda value, world: {"train": [["a", "b"]], "test": [["d"]]})
    with pytest.raises(RunFailed, match=r"t.py: test_data\(\) gave other samples on rank 1 than on rank 0.*fixed seed"):
        same_samples(mine, WORLD, name="t.py")


class Walked(IterableDataset):
    def __init__(self, *values: int) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        return ((torch.tensor([value]), 0) for value in self.values)


def walked(*values: int) -> Any:
    feed = make_feed(Walked(*values), what="train_data()", collate=None)
    assert len(list(batches(feed, [Piece(np.arange(len(values)), len(values))]))) == 1
    return feed


def test_ranks_compare_what_a_stream_gave_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as both have walked; `other`: what rank 0 says, of the same places."""

    def ask(mine: tuple[int, ...], other: tuple[int, ...]) -> str | None:
        told: list[int] = []
        monkeypatch.setattr(same_data, "agree", lambda value, world: (told.append(value), (value, value))[1])
        same_pass(walked(*other), "train", WORLD, name="t.py")
        theirs = iter(told)
        monkeypatch.setattr(same_data, "agree", lambda value, world: tuple(sorted((value, next(theirs)))))
        return same_pass(walked(*mine), "train", WORLD, name="t.py")

    assert ask((1, 2, 3), (1, 2, 3)) is None
    assert ask((1, 2, 2, 1), (1, 2, 2, 1)) == (
        "train_data() is a stream that gave 2 different samples and 2 of them again, in a pass of 4"
    )
    with pytest.raises(RunFailed, match="a stream that gave the ranks other samples at the same places"):
        ask((1, 2, 3), (1, 3, 2))


def test_only_the_first_pass_is_compared() -> None:
    feed = walked(5, 5)
    world: Any = type("One", (), {"size": 1, "rank": 0})()
    assert same_pass(feed, "train", world, name="t.py") is not None
    assert same_pass(feed, "train", world, name="t.py") is None


def _inputs(num: int, found: Look) -> Inputs:
    return Inputs(samples={"train": (num, tuple(tuple(row) for row in found.samples[:16]))})


def test_other_samples_than_when_the_task_was_looked_into() -> None:
    then = _inputs(300, seen(Samples(ROWS, LABELS)))
    alone = look(make_feed(Samples(ROWS, LABELS), what="data", collate=None), most=16)
    assert len(alone.samples) == 16  # as many as were kept, and the same ones
    assert other_samples({"train": (300, alone)}, then) == []
    for num, data in ((300, Samples(ROWS, LABELS.flip(0))), (299, Samples(ROWS, LABELS))):
        ((kind, text),) = other_samples({"train": (num, seen(data))}, then)
        assert kind == OTHER_DATA and text.startswith("train_data() gave other samples in this run")


def test_augmented_samples_are_not_other_ones() -> None:
    """A part that is drawn anew each time says nothing."""
    data = Drawn(lambda: np.random.default_rng().random())
    assert other_samples({"train": (300, seen(data))}, _inputs(300, seen(data))) == []


class Counting(Samples):
    """Its rows follow from how many were fetched before, and from a generator of its own."""

    def __init__(self) -> None:
        super().__init__(ROWS, LABELS)
        self.fetched, self.drawn = 0, random.Random(3)

    def __getitem__(self, index: int) -> Any:
        self.fetched += 1
        return super().__getitem__(index)[0] + self.fetched + self.drawn.random(), index


def test_a_look_moves_nothing_that_a_dataset_counts_or_draws() -> None:
    untouched, looked_at = Counting(), Counting()
    look(make_feed(looked_at, what="", collate=None))
    assert looked_at.fetched == 0
    assert torch.equal(looked_at[7][0], untouched[7][0])
