"""The door to the disk: whole files appear by rename, logs grow by appended lines. Nothing else in Paceline opens a file to write.

A reader therefore never sees half a JSON document; a line that a killed writer left unfinished is dropped by `read_lines`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO, Any

from paceline.base.errors import BadInput, RunFailed


@contextlib.contextmanager
def _writing(path: Path) -> Generator[None]:
    """A full disk, a file where a folder must be, no permission: the user can fix these, so they become a sentence."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RunFailed(f"{path}: cannot be written ({error.strerror})", kind="disk") from None


def write_bytes(path: Path, blob: bytes) -> None:
    """Write to a temporary name in the same folder, flush to disk, rename: all or nothing."""
    with _writing(path), unfinished(path) as name:
        # Created as any program creates a file, so that the user's umask decides who may read it.
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(blob)


@contextlib.contextmanager
def unfinished(path: Path) -> Generator[Path]:
    """A temporary name in the folder of `path`. What the block wrote there is flushed and renamed to `path`: all or
    nothing."""
    name = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield name
        with name.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(name, path)
    finally:
        name.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """JSON as other languages read it: a NaN is refused here, because it is not JSON."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not valid JSON ({error}); the file is damaged or not one of ours") from None


def open_log(path: Path) -> IO[bytes]:
    """A log that a child process writes to; appended, so a restart keeps what was there."""
    with _writing(path):
        return path.open("ab", buffering=0)


class Lines:
    """An append-only JSON-lines file: one `write` system call a line, so a killed process leaves whole lines."""

    def __init__(self, path: Path) -> None:
        self._file = open_log(path)

    def append(self, value: Any) -> None:
        self._file.write(json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def read_lines(path: Path) -> Iterator[Any]:
    """The whole lines of a JSON-lines file; an unfinished last line (a killed writer) is left out."""
    if not path.exists():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line:
            continue
        try:
            yield json.loads(line)
        except ValueError:
            if number <= path.read_bytes().count(b"\n"):
                raise BadInput(f"{path}, line {number}: not valid JSON; the file is damaged") from None


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def move(path: Path, to: Path) -> None:
    """A file or folder, on the same disk."""
    with _writing(to):
        os.replace(path, to)


def remove_tree(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise RunFailed(f"{path}: cannot be removed ({error.strerror})", kind="disk") from None


def remove_file(path: Path) -> None:
    """Gone afterwards, whether it was there or not."""
    path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, *, why: str) -> Generator[None]:
    """Hold `path` as a lock for the length of a block; the kernel lets go of it when the process dies."""
    with _writing(path):
        opened = path.open("a")
    with opened as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(why) from None
        except OSError as error:
            raise RunFailed(
                f"{path}: this file system has no locks ({error.strerror}); put --out on another one", kind="disk"
            ) from None
        yield


@contextlib.contextmanager
def scratch() -> Generator[Path]:
    """A folder for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="paceline-") as name:
        yield Path(name)
