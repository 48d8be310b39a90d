"""IDX files: every spelling and place is found, every fault is one sentence."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from paceline.base.errors import BadInput
from paceline.worker.tasks import idx


def blob(array: np.ndarray, dtype: int = 0x08) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, dtype, array.ndim, *array.shape) + array.tobytes()


IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
GOOD = blob(IMAGES)
PACKED = gzip.compress(GOOD, mtime=0)


@pytest.mark.parametrize(
    ("name", "content"), [("x", GOOD), ("x.gz", PACKED), ("x", PACKED)], ids=["plain", "gzip", "gzip by content"]
)
def test_reads_plain_and_gzip(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert np.array_equal(idx.read(tmp_path / name, ndim=3), IMAGES)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x", b"", ["the file is empty"]),
        ("x.gz", b"", ["the file is empty"]),
        ("x.gz", GOOD, ["ends in .gz", "not a gzip file"]),
        ("x.gz", PACKED[:-12], ["gzip file is truncated", f"{len(PACKED) - 12} bytes"]),
        ("x.gz", PACKED[:4], ["gzip file is truncated"]),
        ("x.gz", PACKED[:-8] + b"\0" * 8, ["gzip file is damaged", "CRC"]),
        ("x.gz", PACKED[:10] + b"\xff" * 20, ["gzip file is damaged"]),
        ("x.gz", gzip.compress(b"", mtime=0), ["not an IDX file"]),
        ("x", b"\x89PNG\r\n" + GOOD, ["not an IDX file", "0x89504e47", "0x00000803"]),
        ("x", b"\0\0", ["not an IDX file", "0x0000,"]),
        ("x", b"\0\0\x07\x03" + GOOD[4:], ["not an IDX file"]),
        ("x", blob(IMAGES.astype(">f4"), 0x0D), ["holds float32", "unsigned bytes"]),
        ("x", blob(np.zeros(5, np.uint8)), ["0x00000801", "0x00000803", "exchanged"]),
        ("x", GOOD[:9], ["truncated", "16 bytes", "found 9"]),
        ("x", GOOD[:-1], ["truncated", "expected 40 bytes", "found 39"]),
        ("x", struct.pack(">BBBBIII", 0, 0, 8, 3, *[2**32 - 1] * 3), ["truncated", "found 16"]),
        ("x", GOOD + b"\n", ["1 bytes after the end", "expected 40 bytes", "found 41"]),
    ],
)
def test_fault_is_one_sentence(tmp_path: Path, name: str, content: bytes, words: list[str]) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        idx.read(path, ndim=3)
    check(caught.value, [str(path), *words])


def check(error: BadInput, words: list[str]) -> None:
    assert len(error.problems) == 1
    assert "\n" not in error.problems[0]
    for word in words:
        assert word in error.problems[0]


def test_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        idx.read(tmp_path, ndim=3)


NAMES = ["{}-{}-idx{}-ubyte", "{}-{}.idx{}-ubyte", "{}-{}-idx{}-ubyte.gz", "{}-{}.idx{}-ubyte.gz"]


@pytest.mark.parametrize("place", ["MNIST/raw", "raw", "."])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split", ["train", "t10k"])
def test_locates(tmp_path: Path, place: str, name: str, split: str) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = folder / name.format(split, "images", 3), folder / name.format(split, "labels", 1)
    images.touch()
    labels.touch()
    found = idx.locate(tmp_path, split)
    assert [os.path.normpath(path) for path in found] == [os.path.normpath(images), os.path.normpath(labels)]


def test_never_mixes_two_copies(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "train-images-idx3-ubyte").touch()
    (tmp_path / "train-labels-idx1-ubyte").touch()
    with pytest.raises(BadInput, match=r"no train labels in .*raw; looked for train-labels-idx1-ubyte,"):
        idx.locate(tmp_path, "train")


def test_folder_missing_a_file_or_empty(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for data, words in {
        tmp_path / "none": ["no such folder"],
        tmp_path / "file": ["is a file", "MNIST/raw"],
        tmp_path: ["no t10k images", "t10k-images-idx3-ubyte, t10k-images.idx3-ubyte", "t10k-images-idx3-ubyte.gz"],
    }.items():
        with pytest.raises(BadInput) as caught:
            idx.locate(data, "t10k")
        check(caught.value, [f"data={data}", *words])
