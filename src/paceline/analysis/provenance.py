"""Which machines, versions and source the runs came from, and whether all were the same. It reads fingerprints only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.records.record import Record

Print = dict[str, Any]


def _hardware(mark: Print) -> str:
    memory = mark.get("memory_bytes")
    parts = [
        str(mark.get("cpu") or "unknown processor"),
        f"{mark['cores']} cores" if mark.get("cores") else "",
        f"{memory / 2**30:.0f} GiB" if memory else "",
        f"{mark['gpus']} GPUs" if mark.get("gpus") else "no GPU",
        str(mark.get("system") or ""),
    ]
    return ", ".join(part for part in parts if part)


def _versions(mark: Print) -> str:
    versions: dict[str, str | None] = mark.get("versions") or {}
    named = [f"{name} {version}" for name, version in versions.items() if version]
    return ", ".join([*named, f"Python {mark['python']}"] if mark.get("python") else named)


def _code(mark: Print) -> str:
    git: dict[str, Any] = mark.get("git") or {}
    if not git.get("commit"):
        return "not in a git repository"
    changed = {True: "with uncommitted changes", False: "clean", None: "state unknown"}[git.get("changed")]
    return f"commit {str(git['commit'])[:12]}, {changed}"


def _host(mark: Print) -> str:
    return str(mark.get("host") or "unknown")


def _distinct(marks: Sequence[Print], told: Callable[[Print], str]) -> list[str]:
    return list(dict.fromkeys(told(mark) for mark in marks))


class Provenance:
    """`hardware`, `versions` and `code` of these runs in words; `notes` where they differ between runs."""

    def __init__(self, records: Sequence[Record]) -> None:
        marks: list[Print] = [mark for record in records if (mark := record.plain.get("fingerprint"))]
        self.hardware = "; ".join(_distinct(marks, _hardware)) or "unknown"
        self.versions = "; ".join(_distinct(marks, _versions)) or "unknown"
        self.code = "; ".join(_distinct(marks, _code)) or "unknown"
        self.notes = tuple(
            f"The runs come from {len(found)} {what} ({', '.join(found)}): part of a difference may be theirs."
            for what, told in (
                ("machines", _host),
                ("kinds of machine", _hardware),
                ("sets of versions", _versions),
                ("states of the source", _code),
            )
            if len(found := _distinct(marks, told)) > 1
        )
