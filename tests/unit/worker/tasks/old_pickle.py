"""A CIFAR-10 python batch as Python 2 wrote it in 2009, instruction by instruction; Python 3 has no way to write one."""

from __future__ import annotations

import struct

import numpy as np


def _string(text: bytes) -> bytes:
    if len(text) < 256:
        return b"U" + bytes([len(text)]) + text  # SHORT_BINSTRING
    return b"T" + struct.pack("<i", len(text)) + text  # BINSTRING


def _number(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    return b"M" + struct.pack("<H", value) if 0 <= value < 65536 else b"J" + struct.pack("<i", value)


def batch(images: np.ndarray, labels: list[int], *, labels_key: str = "labels", by_columns: bool = False) -> bytes:
    shape = b"".join(map(_number, images.shape)) + b"\x86"
    kind = b"cnumpy\ndtype\nq\x0f" + _string(b"u1") + b"K\x00K\x01\x87Rq\x12"
    kind += b"(K\x03" + _string(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x08cnumpy\nndarray\nq\tK\x00\x85q\n" + _string(b"b") + b"\x87Rq\r"
    array += b"(K\x01" + shape + kind + (b"\x88" if by_columns else b"\x89")
    array += _string(images.tobytes(order="F" if by_columns else "C")) + b"tb"
    numbers = b"]q\x05(" + b"".join(map(_number, labels)) + b"e"
    entries = _string(b"batch_label") + _string(b"training batch 1 of 5") + _string(labels_key.encode()) + numbers
    entries += _string(b"data") + array + _string(b"filenames") + b"](" + _string(b"a.png") * len(labels) + b"e"
    return b"\x80\x02}q\x01(" + entries + b"u."
