"""Finds and reads CIFAR-10 on disk: the binary batches, or the python batches. It must not import torch or run what it reads.

Whatever is wrong with a file is one sentence. A set with a batch missing is refused: it would train, on fewer images.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paceline.base.errors import BadInput
from paceline.worker.tasks import cifar_batches

Bytes = np.ndarray[Any, np.dtype[np.uint8]]

SIDE, CHANNELS, CLASSES = 32, 3, 10
_PIXELS = CHANNELS * SIDE * SIDE
_RECORD = 1 + _PIXELS  # a label, then the red, green and blue plane
_NAMES = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
_FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py", "")


def read(folder: Path, split: str) -> tuple[Bytes, Bytes]:
    """(images [N, 3, 32, 32], labels [N]) of "train" or "test" below what the user called `data=`."""
    parts = [_read_file(path) for path in locate(folder, split)]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def locate(folder: Path, split: str) -> list[Path]:
    """The files of one split, all from one place and in one format."""
    if not folder.exists():
        raise BadInput(f"data={folder}: no such folder")
    if not folder.is_dir():
        raise BadInput(f"data={folder}: is a file; name the folder that holds cifar-10-batches-bin or the batches")
    for place in (folder / name for name in _FOLDERS):
        for ending in (".bin", ""):
            paths = [place / f"{name}{ending}" for name in _NAMES[split]]
            missing = [path.name for path in paths if not path.is_file()]
            if not missing:
                return paths
            if len(missing) < len(paths):
                raise BadInput(
                    f"data={folder}: {', '.join(missing)} is missing in {place}; all {len(paths)} are needed"
                )
    first = _NAMES[split][0]
    raise BadInput(
        f"data={folder}: no CIFAR-10 {split} batches in it, in cifar-10-batches-bin or in cifar-10-batches-py below it; "
        f"looked for {first}.bin and {first}"
    )


def _read_file(path: Path) -> tuple[Bytes, Bytes]:
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from None
    if not blob:
        raise BadInput(f"{path}: the file is empty; fetch it again")
    return parse_binary(blob, name=str(path)) if path.suffix == ".bin" else parse_python(blob, name=str(path))


def parse_binary(blob: bytes, *, name: str) -> tuple[Bytes, Bytes]:
    """Records of 3,073 bytes one after the other."""
    if not blob or len(blob) % _RECORD:
        raise BadInput(
            f"{name}: {len(blob)} bytes are no whole number of images of {_RECORD} bytes; fetch the file again"
        )
    records = np.frombuffer(blob, dtype=np.uint8).reshape(-1, _RECORD)
    return records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE), _checked(records[:, 0], name)


def parse_python(blob: bytes, *, name: str) -> tuple[Bytes, Bytes]:
    """A dictionary with "data" [N, 3072] and "labels"."""
    batch = cifar_batches.parse(blob, name=name)
    images, labels = batch.get("data"), batch.get("labels")
    if not isinstance(images, np.ndarray) or not isinstance(labels, list):
        raise BadInput(f'{name}: no array "data" and list "labels" in it, as CIFAR-10\'s python batches have them')
    if images.ndim != 2 or images.shape[1] != _PIXELS:
        raise BadInput(f"{name}: images of shape {list(images.shape)}; CIFAR-10 has {_PIXELS} bytes an image")
    if len(images) != len(labels):
        raise BadInput(f"{name}: holds {len(images)} images and {len(labels)} labels")
    if not len(images):
        raise BadInput(f"{name}: holds 0 images; there is nothing to train on")
    if not all(type(label) is int for label in labels):
        raise BadInput(f"{name}: a label is not a whole number; labels must be 0 to {CLASSES - 1}")
    return images.reshape(-1, CHANNELS, SIDE, SIDE), _checked(np.array(labels, dtype=np.int64), name)


def _checked(labels: np.ndarray[Any, np.dtype[Any]], name: str) -> Bytes:
    wrong = (labels < 0) | (labels >= CLASSES)
    if wrong.any():
        where = int(wrong.argmax())
        raise BadInput(f"{name}: label {labels[where]} at position {where}; labels must be 0 to {CLASSES - 1}")
    return labels.astype(np.uint8)
