"""Folders of data with one thing wrong in each, as small as the format allows. Test support only."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

Maker = Callable[[Path], None]

_SPLITS = {"train": 8, "t10k": 4}


def _idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x0800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def mnist(name: str, change: Callable[[bytes], bytes | None]) -> Maker:
    """data/MNIST/raw with its four files; the one called `name` is changed, or left out where `change` gives None."""

    def make(folder: Path) -> None:
        raw = folder / "data" / "MNIST" / "raw"
        raw.mkdir(parents=True)
        for split, num in _SPLITS.items():
            whole = {
                f"{split}-images-idx3-ubyte": np.zeros((num, 28, 28)),
                f"{split}-labels-idx1-ubyte": np.arange(num) % 10,
            }
            for file, array in whole.items():
                blob = _idx(array)
                if file in name:
                    blob = change(blob)
                if blob is not None:
                    (raw / (name if file in name else file)).write_bytes(blob)

    return make


def damaged_gzip(blob: bytes) -> bytes:
    """The right length and the right ends, with a hole in the middle."""
    packed = bytearray(gzip.compress(blob))
    middle = len(packed) // 2
    packed[middle : middle + 8] = b"\xff" * 8
    return bytes(packed)


def features(**changed: np.ndarray) -> Maker:
    """data/ with train_data and test_data as .npy files; what is named (train_x, test_y, ...) is put in their place."""

    def make(folder: Path) -> None:
        for split, num in (("train", 8), ("test", 4)):
            part = folder / "data" / f"{split}_data"
            part.mkdir(parents=True)
            whole = {f"{split}_x": np.zeros((num, 3), np.float32), f"{split}_y": np.arange(num) % 2}
            for name, array in {**whole, **{k: v for k, v in changed.items() if k.startswith(split)}}.items():
                np.save(part / f"{name}.npy", array, allow_pickle=True)

    return make
