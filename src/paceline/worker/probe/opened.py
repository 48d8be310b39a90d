"""Files that code outside of Python opens (a reader of tables in Rust or C++): the kernel says so (inotify) of folders that are
watched."""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

from paceline.worker.measure.clock import wall

_OPEN, _CLOSE_WRITE, _ONLYDIR, _OVERFLOW = 0x20, 0x8, 0x01000000, 0x4000
_NONBLOCK, _CLOEXEC = 0x800, 0x80000
_EVENT = struct.Struct("iIII")
_MOST_FOLDERS = 256
_OURS = ("spec.json", "study.json")  # a folder with one of these holds a run or a study


class Opened:
    """Without the kernel's help nothing is found, as with a file elsewhere: what Python itself opens is heard of otherwise."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        start = getattr(self._library, "inotify_init1", None)  # Linux
        self._handle = -1 if start is None else start(_NONBLOCK | _CLOEXEC)
        self._folders: dict[int, str] = {}
        self._began_ns = int(wall() * 1e9)

    def watch(self, root: Path) -> None:
        """This folder and those in it, as far as they are few."""
        queue = [root]
        while queue and self._handle >= 0 and len(self._folders) < _MOST_FOLDERS:
            folder = queue.pop(0)
            if str(folder) in self._folders.values():
                continue
            mask = _OPEN | _CLOSE_WRITE | _ONLYDIR
            number = self._library.inotify_add_watch(self._handle, os.fsencode(folder), mask)
            if number >= 0:
                self._folders[number] = str(folder)
                queue += sorted(_folders_in(folder))[:_MOST_FOLDERS]

    def end(self) -> set[str]:
        """Files that were opened by anybody, and were not written meanwhile: those are somebody's results."""
        opened, written = set[str](), set[str]()
        while self._handle >= 0 and (block := self._read()):
            at = 0
            while at < len(block):
                number, mask, _, length = _EVENT.unpack_from(block, at)
                name = block[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
                at += _EVENT.size + length
                if name and number in self._folders and not mask & _OVERFLOW:
                    path = os.path.join(self._folders[number], os.fsdecode(name))
                    (written if mask & _CLOSE_WRITE else opened).add(path)
        if self._handle >= 0:
            os.close(self._handle)
        return {name for name in opened - written if self._is_older(name)}

    def _is_older(self, name: str) -> bool:
        try:
            return os.stat(name).st_mtime_ns < self._began_ns
        except OSError:
            return False

    def _read(self) -> bytes:
        try:
            return os.read(self._handle, 1 << 16)
        except BlockingIOError:
            return b""


def _folders_in(folder: Path) -> list[Path]:
    try:
        return [
            Path(entry.path)
            for entry in os.scandir(folder)
            if entry.is_dir(follow_symlinks=False) and entry.name[0] not in "._" and not _is_ours(Path(entry.path))
        ]
    except OSError:
        return []


def _is_ours(folder: Path) -> bool:
    return any((folder / name).exists() for name in _OURS)
