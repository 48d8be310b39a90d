"""Reads IDX files, the format of MNIST: a magic number, big-endian sizes, raw bytes, often inside gzip.
It must not import torch, and whatever is wrong with a file is one sentence, never a traceback."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from paceline.base.errors import BadInput

_GZIP = b"\x1f\x8b"
_DTYPES = {0x08: "unsigned bytes", 0x09: "signed bytes", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def read(path: Path, *, ndim: int) -> Bytes:
    """The unsigned bytes of one IDX file with `ndim` dimensions; gzip is recognised by content as well as by name."""
    try:
        blob = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror or error})") from None
    return parse(blob, name=str(path), ndim=ndim)


def parse(blob: bytes, *, name: str, ndim: int) -> Bytes:
    """The array inside the bytes of an IDX file; `name` is what the sentences call it. The array is read-only."""
    if not blob:
        raise BadInput(f"{name}: the file is empty; an IDX file was expected")
    if blob.startswith(_GZIP) or name.endswith(".gz"):
        blob = _gunzip(blob, name)
    start = 4 + 4 * ndim
    _check_magic(blob[:4], name, ndim)
    if len(blob) < start:
        raise BadInput(f"{name}: truncated: the header takes {start} bytes, found {len(blob)}; fetch the file again")
    shape = struct.unpack(f">{ndim}I", blob[4:start])
    expected = start + math.prod(shape)  # in Python integers: a damaged header may claim more than 2**64 bytes
    if len(blob) < expected:
        raise BadInput(f"{name}: truncated: expected {expected} bytes, found {len(blob)}; fetch the file again")
    if len(blob) > expected:
        surplus = len(blob) - expected
        raise BadInput(f"{name}: {surplus} bytes after the end: expected {expected} bytes, found {len(blob)}")
    return np.frombuffer(blob, dtype=np.uint8, offset=start).reshape(shape)


def _gunzip(blob: bytes, name: str) -> bytes:
    if not blob.startswith(_GZIP):
        raise BadInput(f"{name}: its name ends in .gz, but it is not a gzip file; fetch it again or rename it")
    try:
        return gzip.decompress(blob)
    except EOFError:
        raise BadInput(f"{name}: the gzip file is truncated after {len(blob)} bytes; fetch it again") from None
    except (OSError, zlib.error) as error:
        raise BadInput(f"{name}: the gzip file is damaged ({error}); fetch it again") from None


def _check_magic(magic: bytes, name: str, ndim: int) -> None:
    """Two zero bytes, the type, the number of dimensions: each can be wrong for a different reason."""
    wanted = f"0x{0x0800 + ndim:08x}"
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _DTYPES:
        raise BadInput(f"{name}: not an IDX file: its magic number is 0x{magic.hex()}, {wanted} was expected")
    if magic[2] != 0x08:
        raise BadInput(f"{name}: holds {_DTYPES[magic[2]]}; MNIST files hold unsigned bytes (magic number {wanted})")
    if magic[3] != ndim:
        hint = "are images and labels exchanged?" if magic[3] in (1, 3) else "this is another kind of data"
        raise BadInput(f"{name}: magic number 0x{magic.hex()} where {wanted} was expected; {hint}")


def locate(folder: Path, split: str) -> tuple[Path, Path]:
    """The images and labels of `split` ("train" or "t10k") below what the user called `data=`.

    Both come from one place: the labels of one copy must not be paired with the images of another."""
    if not folder.exists():
        raise BadInput(f"data={folder}: no such folder")
    if not folder.is_dir():
        raise BadInput(f"data={folder}: is a file; name the folder that holds MNIST/raw, raw or the IDX files")
    kinds = ("images", 3), ("labels", 1)
    names = {kind: _names(split, kind, ndim) for kind, ndim in kinds}
    for place in (folder / "MNIST" / "raw", folder / "raw", folder):
        paths = {kind: next((place / name for name in names[kind] if (place / name).is_file()), None) for kind in names}
        images, labels = paths["images"], paths["labels"]
        if images and labels:
            return images, labels
        if images or labels:
            missing = "labels" if images else "images"
            raise BadInput(f"data={folder}: no {split} {missing} in {place}; looked for {', '.join(names[missing])}")
    looked = ", ".join(names["images"])
    raise BadInput(f"data={folder}: no {split} images in it, in MNIST/raw or in raw below it; looked for {looked}")


def _names(split: str, kind: str, ndim: int) -> tuple[str, ...]:
    """The spellings in use; the unpacked one first, because it is quicker to read."""
    stems = f"{split}-{kind}-idx{ndim}-ubyte", f"{split}-{kind}.idx{ndim}-ubyte"
    return tuple(stem + end for end in ("", ".gz") for stem in stems)
