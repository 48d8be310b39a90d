"""Reads one .npy array and trusts nothing in it: header, type and length are checked before any data is loaded.
It must not import torch and never unpickles; whatever is wrong with a file is one sentence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil
from numpy.lib import format as npy_format

from paceline.base.errors import BadInput

Array = np.ndarray[Any, np.dtype[Any]]


def read(path: Path, *, most_bytes: int | None = None) -> Array:
    """The array in `path`; refused when it is missing, not an .npy file, pickled, or not as long as its header says.

    One that is larger than `most_bytes` is mapped instead of loaded; unset, that is a quarter of the machine's memory.
    """
    if most_bytes is None:
        most_bytes = psutil.virtual_memory().total // 4
    try:
        with path.open("rb") as file:
            shape, dtype = _header(file, path)
            expected = file.tell() + math.prod(shape) * dtype.itemsize
        actual = path.stat().st_size
        if actual != expected:
            what = "truncated" if actual < expected else "bytes after the end"
            raise BadInput(f"{path}: {what}: expected {expected} bytes, found {actual}")
        return np.load(path, allow_pickle=False, mmap_mode="r" if actual > most_bytes else None)
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise BadInput(f"{path}: not a readable .npy file ({_first_line(error)})") from None


def _header(file: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type. Reading the header apart from the data tells an object array from a damaged file,
    and keeps a damaged header from claiming a terabyte."""
    if not file.read(len(npy_format.MAGIC_PREFIX)).startswith(npy_format.MAGIC_PREFIX):
        raise BadInput(f"{path}: not an .npy file; save the array with numpy.save")
    file.seek(0)
    version = npy_format.read_magic(file)
    # Version 3 only exists for structured types with names outside latin-1, which cannot be features or labels.
    if version not in ((1, 0), (2, 0)):
        raise BadInput(f"{path}: .npy version {version[0]}.{version[1]} is not a plain array")
    reader = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, _, dtype = reader(file)
    if dtype.hasobject:
        raise BadInput(f"{path}: holds pickled Python objects, which are never loaded; save plain numbers instead")
    return shape, dtype


def _first_line(error: Exception) -> str:
    """numpy answers a damaged header with paragraphs; one sentence has room for the first line."""
    return (str(error).splitlines() or ["unknown fault"])[0].rstrip(".")
