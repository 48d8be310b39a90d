"""Batches by walking: the right samples in the right order, whatever the data is made of; mapped files are read ahead and not loaded."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.worker.tasks import npy
from paceline.worker.tasks.ahead import Ahead, is_mapped
from paceline.worker.tasks.feed import Indexed, MappedFeed, TensorFeed, batches
from paceline.worker.tasks.given import make_feed
from paceline.worker.tasks.order import Piece

IDS = ([5, 1, 7], [0], [3, 2])
PIECES = [Piece(np.array(ids, dtype=np.int64), len(ids)) for ids in IDS]
ROWS = np.arange(8 * 3, dtype=np.float32).reshape(8, 3)
LABELS = np.arange(8)


class Samples(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(ROWS[index]), int(LABELS[index])


@pytest.fixture
def mapped(tmp_path: Path) -> np.ndarray[Any, Any]:
    np.save(tmp_path / "x.npy", ROWS)
    return npy.read(tmp_path / "x.npy", most_bytes=10)


@pytest.mark.parametrize("kind", ["tensors", "mapped", "dataset"])
def test_each_piece_is_its_own_samples(kind: str, mapped: np.ndarray[Any, Any]) -> None:
    data = {"tensors": (ROWS, LABELS), "mapped": (mapped, LABELS), "dataset": Samples()}[kind]
    feed = make_feed(data, what="data", collate=None)
    assert (feed.kind, feed.num) == (kind, 8)
    found = list(batches(feed, [PIECES[0], Piece(np.zeros(0, dtype=np.int64), 4), *PIECES[1:]]))
    assert found[1] is None, "an empty piece"
    for (x, y), ids in zip([found[0], *found[2:]], IDS, strict=True):
        assert y.tolist() == ids and torch.equal(x, torch.from_numpy(ROWS[ids]))


def test_tensors_may_be_taken_anywhere_and_others_only_in_order() -> None:
    walk = TensorFeed((torch.from_numpy(ROWS),)).walk(PIECES)
    assert isinstance(walk, Indexed) and walk.ids.tolist() == [5, 1, 7, 0, 3, 2]
    assert torch.equal(walk.take(2)[0], torch.from_numpy(ROWS[[3, 2]]))
    assert torch.equal(walk.take(0)[0], torch.from_numpy(ROWS[[5, 1, 7]]))
    other = make_feed(Samples(), what="data", collate=None).walk(PIECES)
    with pytest.raises(AssertionError, match="one after the other"):
        other.take(1)


def test_a_file_too_large_is_mapped_and_a_small_one_loaded(tmp_path: Path, mapped: np.ndarray[Any, Any]) -> None:
    assert is_mapped(mapped) and is_mapped(mapped[2:]) and not is_mapped(ROWS)
    assert not is_mapped(npy.read(tmp_path / "x.npy"))
    feed = make_feed((mapped, LABELS), what="data", collate=None)
    assert isinstance(feed, MappedFeed)
    assert np.shares_memory(feed.tensors[0].numpy(), mapped), "nothing was copied"


def _readers() -> int:
    return sum(thread.name == "reads ahead" for thread in threading.enumerate())


def test_who_stops_in_the_middle_leaves_no_thread() -> None:
    ids = [np.array([index % 8]) for index in range(100)]
    coming = iter(Ahead((torch.from_numpy(ROWS),), ids, pinned=False))
    assert next(coming)[0].tolist() == [ROWS[0].tolist()]
    assert _readers() == 1
    coming.close()  # pyright: ignore[reportAttributeAccessIssue]
    end = time.monotonic() + 30
    while _readers() and time.monotonic() < end:
        time.sleep(0.01)
    assert not _readers()


def test_what_breaks_in_the_thread_is_said_where_the_batch_is_asked_for() -> None:
    coming = iter(Ahead((torch.from_numpy(ROWS),), [np.array([3]), np.array([8])], pinned=False))
    next(coming)
    with pytest.raises(IndexError, match="out of range"):
        next(coming)
