"""The python batches are read without running them: what Python 2 and Python 3 wrote, and what somebody planted."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.base.errors import BadInput
from paceline.worker.tasks.cifar_batches import parse
from unit.worker.tasks.old_pickle import batch

IMAGES = np.arange(2 * 6, dtype=np.uint8).reshape(2, 6)


@pytest.mark.parametrize("by_columns", [False, True])
def test_reads_what_python_2_wrote(by_columns: bool) -> None:
    blob = batch(IMAGES, [3, 300], by_columns=by_columns)
    found = parse(blob, name="batch")
    assert found["data"].tolist() == IMAGES.tolist()
    assert found["labels"] == [3, 300]
    assert found["batch_label"] == b"training batch 1 of 5"
    # The real unpickler agrees, so the file that the test wrote is a pickle indeed.
    real = pickle.loads(blob, encoding="bytes")
    assert real[b"data"].tolist() == IMAGES.tolist() and real[b"labels"] == [3, 300]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("keys", [str, str.encode])
def test_reads_what_python_3_writes(protocol: int, keys: Callable[[str], Any]) -> None:
    """Protocol 5 spells arrays by another name, which is refused; everything older is read."""
    blob = pickle.dumps({keys("data"): IMAGES, keys("labels"): [1, 2]}, protocol=protocol)
    if protocol == 5:
        with pytest.raises(BadInput, match=r"numpy\._core\.numeric\._frombuffer"):
            parse(blob, name="batch")
        return
    found = parse(blob, name="batch")
    assert found["data"].tolist() == IMAGES.tolist() and found["labels"] == [1, 2]


class Trap:
    """Unpickling this would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_planted_call_is_refused(tmp_path: Path, protocol: int) -> None:
    blob = pickle.dumps({"labels": [1], "data": Trap(tmp_path / "sprung")}, protocol=protocol)
    with pytest.raises(BadInput) as caught:
        parse(blob, name="data_batch_1")
    (sentence,) = caught.value.problems
    assert "data_batch_1" in sentence and "\n" not in sentence
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("blob", "words"),
    [
        (b"\x80\x02cos\nsystem\nU\x02ls\x85R.", "asks for os.system"),
        (b"\x80\x02cbuiltins\neval\nU\x011\x85R.", "asks for builtins.eval"),
        (b"\x80\x02cnumpy\nload\nU\x01x\x85R.", "asks for numpy.load"),
        (b"\x80\x02cnumpy.core.multiarray\nscalar\n.", "asks for numpy.core.multiarray.scalar"),
        (b"(cos\nsystem\nU\x02lso.", "asks for os.system"),
        (b"(ios\nsystem\n.", "the pickle instruction INST"),
        (b"\x80\x02U\x01xQ.", "the pickle instruction BINPERSID"),
        (b"\x80\x02\x82\x01.", "the pickle instruction EXT1"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "the pickle instruction NEWOBJ"),
        (b"\x80\x02]q\x01.", "holds a list"),
        (b"\x80\x02cnumpy\nndarray\nK\x00\x85R.", "a call of something that is no function"),
        (b"\x80\x02K\x01K\x02b.", "no array"),
        (b"\x80\x02h\x09.", "not a readable CIFAR-10 python batch"),
        (b"\x80\x02u.", "not a readable CIFAR-10 python batch"),
        (b"\x80\x02K\x01K\x02.", "not a readable CIFAR-10 python batch"),
        (b"\x80\x02}", "not a readable CIFAR-10 python batch"),
        (b"\x80\x02T\xff\xff\xff\x7fabc.", "not a readable CIFAR-10 python batch"),
        (batch(IMAGES, [1, 2]).replace(b"U\x02u1", b"U\x02f8"), "not of bytes"),
        (batch(IMAGES, [1, 2]).replace(b"U\x02u1", b"U\x02O8"), "not of bytes"),
        (batch(IMAGES, [1, 2]).replace(b"K\x02K\x06\x86", b"K\x02K\x07\x86"), "cannot reshape"),
    ],
)
def test_what_no_batch_needs_is_one_sentence(blob: bytes, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(blob, name="batch")
    (sentence,) = caught.value.problems
    assert words in sentence and sentence.startswith("batch: ") and "\n" not in sentence


def test_a_cut_file_is_refused_wherever_it_is_cut() -> None:
    blob = batch(IMAGES, [3, 300])
    for length in range(len(blob)):
        with pytest.raises(BadInput):
            parse(blob[:length], name="batch")


def test_a_full_batch() -> None:
    rng = np.random.Generator(np.random.PCG64(0))
    images = rng.integers(256, size=(10_000, 3072), dtype=np.uint8)
    found = parse(batch(images, [n % 10 for n in range(10_000)]), name="batch")
    assert np.array_equal(found["data"], images)
    assert found["labels"] == [n % 10 for n in range(10_000)]
