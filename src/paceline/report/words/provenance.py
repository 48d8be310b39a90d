"""Machines, versions and source in words, and a note where runs differ in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.records.origin import Fingerprint


def _hardware(mark: Fingerprint) -> str:
    parts = [
        mark.cpu or "unknown processor",
        f"{mark.cores} cores" if mark.cores else "",
        f"{mark.memory_bytes / 2**30:.0f} GiB" if mark.memory_bytes else "",
        f"{mark.gpus} GPU{'s' if mark.gpus > 1 else ''}" if mark.gpus else "no GPU",
        mark.system or "",
    ]
    return ", ".join(part for part in parts if part)


def packages(mark: Fingerprint) -> list[str]:
    return [f"{name} {version}" for name, version in (mark.versions or {}).items() if version]


def _versions(mark: Fingerprint) -> str:
    return ", ".join([*packages(mark), f"Python {mark.python}"] if mark.python else packages(mark))


def _code(mark: Fingerprint) -> str:
    if mark.git is None or not mark.git.commit:
        return "not in a git repository"
    changed = {True: "with uncommitted changes", False: "clean", None: "state unknown"}[mark.git.changed]
    return f"commit {mark.git.commit[:12]}, {changed}"


def _host(mark: Fingerprint) -> str:
    return mark.host or "unknown"


def _distinct(marks: Sequence[Fingerprint], told: Callable[[Fingerprint], str]) -> list[str]:
    return list(dict.fromkeys(told(mark) for mark in marks))


def hardware(marks: Sequence[Fingerprint]) -> str:
    return "; ".join(_distinct(marks, _hardware)) or "unknown"


def versions(marks: Sequence[Fingerprint]) -> str:
    return "; ".join(_distinct(marks, _versions)) or "unknown"


def code(marks: Sequence[Fingerprint]) -> str:
    """The git state of the source."""
    return "; ".join(_distinct(marks, _code)) or "unknown"


def notes(marks: Sequence[Fingerprint]) -> list[str]:
    several = {
        "machines": _distinct(marks, _host),
        "kinds of machine": _distinct(marks, _hardware),
        "sets of versions": _distinct(marks, _versions),
        "states of the source": _distinct(marks, _code),
    }
    return [
        f"The runs come from {len(each)} {what} ({', '.join(each)}): part of a difference may be theirs."
        for what, each in several.items()
        if len(each) > 1
    ]
