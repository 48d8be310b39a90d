"""What a sample is made of, as a digest: samples are the same where their digests are, whichever set or rank has them. It changes nothing
and asks nobody for anything."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Digests = NDArray[np.uint64]
_BYTES = 8  # of a digest: two of a million samples share one by chance once in 40 million sets
UNKNOWN = b"unknown"  # of a part that has no bytes to look at


def digest(value: Any) -> int:
    """Of a whole sample."""
    found = hashlib.blake2b(digest_size=_BYTES)
    for part in parts_of(value):
        found.update(part)
    return int.from_bytes(found.digest(), "little")


def parts_of(value: Any) -> Iterator[bytes]:
    """A digest of each part of a sample, in the order of its structure; `UNKNOWN` for one of an unknown type."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield _of_bytes(b"name", str(name).encode(errors="replace"))
            yield from parts_of(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from parts_of(part)
    else:
        yield _of_part(value)


def _of_part(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        if not readable(value):
            return UNKNOWN
        return _of_bytes(f"{value.dtype}{list(value.shape)}".encode(), _raw(value.reshape(1, -1)))
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            return UNKNOWN
        return _of_bytes(f"{array.dtype}{array.shape}".encode(), np.ascontiguousarray(array).tobytes())
    if value is None or isinstance(value, bool | int | float | complex | str):
        return _of_bytes(type(value).__name__.encode(), repr(value).encode(errors="replace"))
    if isinstance(value, bytes | bytearray):
        return _of_bytes(b"bytes", bytes(value))
    raw = getattr(value, "tobytes", None)  # an image of PIL
    if callable(raw) and hasattr(value, "size"):
        return _of_bytes(f"{type(value).__name__}{value.size}".encode(), raw())
    return UNKNOWN


def _of_bytes(*values: Any) -> bytes:
    found = hashlib.blake2b(digest_size=_BYTES)
    for value in values:
        found.update(value)
    return found.digest()


def readable(tensor: torch.Tensor) -> bool:
    """Whether it is an ordinary dense tensor in host memory."""
    return tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Flat. A dimension of size 1 may have any stride, as NumPy's `x[:, None]` has: that is contiguous, and no view takes it."""
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _raw(rows: torch.Tensor) -> memoryview:
    return memoryview(as_bytes(rows.detach().resolve_conj().resolve_neg()).numpy())  # pyright: ignore[reportArgumentType]


def row_digests(tensors: Sequence[torch.Tensor], ids: NDArray[np.int64]) -> Digests:
    """Of these rows, over all tensors together."""
    if not len(ids):
        return np.zeros(0, dtype=np.uint64)
    every = torch.from_numpy(ids)
    columns: list[tuple[memoryview, int]] = []
    for tensor in tensors:
        raw = _raw(tensor.index_select(0, every).reshape(len(ids), -1))
        columns.append((raw, len(raw) // len(ids)))
    found: list[bytes] = []
    for row in range(len(ids)):
        state = hashlib.blake2b(digest_size=_BYTES)
        for raw, width in columns:
            state.update(raw[row * width : (row + 1) * width])
        found.append(state.digest())
    return np.frombuffer(b"".join(found), dtype=np.uint64)


def row_bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor[0].numel() * tensor.element_size() for tensor in tensors)
