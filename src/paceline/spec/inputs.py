"""What a run of a user's task depends on beside its settings: the files it is made of, the files it reads, the variables it asks for, and
a look at its samples. A finished run stands for its experiment as long as all of it is what it was."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from paceline.base.environment import variables
from paceline.base.files import sha256
from paceline.spec.values import Frozen

_MOST_HASHED = 1 << 26  # bytes: the content of a larger file is not read for this; its size and its time are compared
_NOT_DATA = (".lock", ".pyc", ".tmp")


class Stamp(Frozen):
    """Of a file. `content`: None where it is too large to be read each time."""

    size: int
    mtime_ns: int
    content: str | None = None


class Inputs(Frozen):
    """By path: `modules` are the task's file and what it imports that is not installed, `files` what it opened while it was looked into,
    `folders` what it listed, or read many files of. `variables`: of the environment, a digest of each value. `samples`: of each split how
    many there are, then digests of some, drawn with `seed`. `outside`: it spoke to a network or started a program, and what those answer
    is in nothing else here."""

    modules: dict[str, Stamp] = {}
    files: dict[str, Stamp] = {}
    folders: dict[str, str] = {}
    variables: dict[str, str | None] = {}
    samples: dict[str, tuple[int | None, tuple[tuple[str, ...], ...]]] = {}
    seed: int = 0
    outside: bool = False


def changed(then: Inputs, now: Inputs | None = None) -> list[str]:
    """What is not as it was, in a few words each. `now`: what a look at the same task has found just now. What that did not come
    across is looked up."""
    now = now or Inputs()
    values = variables()
    found = [*_changed_files(then.modules, now.modules), *_changed_files(then.files, now.files)]
    for name, digest in then.folders.items():
        if (now.folders.get(name) or folder_digest(Path(name))) != digest:
            found.append(f"files in {name}")
    for name, digest in then.variables.items():
        if (now.variables[name] if name in now.variables else variable_digest(values.get(name))) != digest:
            found.append(f"the variable {name}")
    return found or _changed_samples(then, now)


def changed_modules(then: Inputs) -> list[str]:
    return list(_changed_files(then.modules))


def changed_here(then: Inputs) -> list[str]:
    """On a machine that may have its own copies of the data, and not all of the files."""
    own = {name: stamp for name, stamp in then.files.items() if stamp.content is not None and Path(name).exists()}
    return [*_changed_files(then.modules), *_changed_files(own)]


def _changed_files(then: Mapping[str, Stamp], now: Mapping[str, Stamp] | None = None) -> Iterator[str]:
    for name, stamp in then.items():
        path = Path(name)
        if now and name in now:
            if not _same(stamp, now[name]):
                yield path.name
        elif not path.is_file():
            yield f"{path.name} is gone" if not path.exists() else path.name
        elif not same_file(path, stamp):
            yield path.name


def _changed_samples(then: Inputs, now: Inputs) -> list[str]:
    """Where no file says so: data that comes from elsewhere, or is made."""
    if now.seed != then.seed:
        return []
    return [
        f"what {split}_data() gives"
        for split, (num, looked) in then.samples.items()
        if split in now.samples and (now.samples[split][0] != num or differ(looked, now.samples[split][1]))
    ]


def source_digest(modules: Mapping[str, Stamp], source: Path) -> str:
    """Of the task's file and its modules: editing any of them makes another experiment."""
    rows = [f"{os.path.relpath(name, source.parent)} {_content(Path(name), stamp)}" for name, stamp in modules.items()]
    return hashlib.sha256("\n".join(sorted(rows)).encode(errors="backslashreplace")).hexdigest()


def _content(path: Path, stamp: Stamp) -> str:
    return stamp.content or sha256(path)


SAYS_NOTHING = ""  # in place of a part of a sample that is different each time, or of an unknown type


def differ(mine: Sequence[Sequence[str]], theirs: Sequence[Sequence[str]]) -> bool:
    """Of samples, as far as both were looked at; one may have had less time."""
    return any(
        len(one) != len(other) or any(a != b and SAYS_NOTHING not in (a, b) for a, b in zip(one, other, strict=True))
        for one, other in zip(mine, theirs, strict=False)
    )


def stamp_of(path: Path, *, most: int = _MOST_HASHED) -> Stamp:
    status = path.stat()
    content = sha256(path)[:16] if status.st_size <= min(most, _MOST_HASHED) else None
    return Stamp(size=status.st_size, mtime_ns=status.st_mtime_ns, content=content)


def _same(one: Stamp, other: Stamp) -> bool:
    """A file that was written again with the same content is the same."""
    if one.size != other.size or one.mtime_ns == other.mtime_ns:
        return one.size == other.size
    return one.content is not None and one.content == other.content


def same_file(path: Path, stamp: Stamp) -> bool:
    status = path.stat()
    now = Stamp(size=status.st_size, mtime_ns=status.st_mtime_ns)
    return _same(stamp, now) or (stamp.size == now.size and _same(stamp, stamp_of(path)))


def folder_digest(path: Path) -> str | None:
    """Names, sizes and times of its files, and names of its folders; None where there is none. What is hidden, and what only marks that
    somebody is at work, is left out."""
    try:
        entries = [entry for entry in os.scandir(path) if entry.name[0] != "." and not entry.name.endswith(_NOT_DATA)]
        rows = [
            (entry.name, *(() if entry.is_dir() else (entry.stat().st_size, entry.stat().st_mtime_ns)))
            for entry in entries
            if entry.name != "__pycache__"
        ]
    except OSError:
        return None
    return hashlib.sha256(repr(sorted(rows)).encode(errors="backslashreplace")).hexdigest()[:16]


def variable_digest(value: str | None) -> str | None:
    """Not the value: it may be a password. So short a digest fits too many values to give one away."""
    return None if value is None else hashlib.sha256(value.encode(errors="replace")).hexdigest()[:6]
