"""TensorBoard event files written without TensorBoard: masked CRC-32C framing around a hand-made protobuf.

133 MB of dependencies for two message types is a bad bargain; `tests/unit/records/test_files.py` reads the files with the real thing.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from pathlib import Path

from paceline.base.files import open_log


def _table() -> tuple[int, ...]:
    rows: list[int] = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


_CRC = _table()


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _scalar_event(tag: str, value: float, step: int, t: float) -> bytes:
    summary_value = _field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)
    return b"\x09" + struct.pack("<d", t) + b"\x10" + _varint(step) + _field(5, _field(1, summary_value))


class ScalarFile:
    """One event file, as TensorBoard expects to find it in a folder of its own."""

    def __init__(self, folder: Path, *, t: float) -> None:
        self._file = open_log(folder / f"events.out.tfevents.{int(t)}.{socket.gethostname()}")
        self._record(b"\x09" + struct.pack("<d", t) + _field(3, b"brain.Event:2"))

    def _record(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        self._file.write(length + _masked_crc(length) + data + _masked_crc(data))

    def add(self, values: Mapping[str, float | None], *, step: int, t: float) -> None:
        for tag, value in values.items():
            if value is not None:
                self._record(_scalar_event(tag, value, step, t))

    def close(self) -> None:
        self._file.close()
