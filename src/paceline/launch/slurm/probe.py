"""What a job and its ranks have left in the run directory so far, seen from another machine. Reading only, and cheap enough to repeat.

On a network file system a file that was not there is remembered as not there, for up to a minute; listing its folder asks again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paceline.records.layout import RunDir
from paceline.spec.run import Spec

_TAIL_BYTES = 4096


def present(path: Path) -> bool:
    try:
        return path.name in os.listdir(path.parent)
    except OSError:
        return False


def numbers(path: Path) -> list[float]:
    """The numbers in a file the job wrote; none when it is not there."""
    try:
        return [float(word) for word in path.read_text().split()] if present(path) else []
    except (OSError, ValueError):
        return []


def last_line(path: Path) -> str:
    lines = _tail(path).decode(errors="replace").strip().splitlines()
    return lines[-1].strip()[:300] if lines else ""


def _tail(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            return file.read()
    except OSError:
        return b""


def _last_events(run: RunDir, rank: int) -> Iterator[dict[str, Any]]:
    """The end of a rank's events; a line that is cut or half written is passed over."""
    for line in _tail(run.events(rank)).split(b"\n"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event


def lost_machine(run: RunDir, spec: Spec) -> bool:
    """A rank has said that another machine is gone; ranks of one machine have nobody to lose."""
    if spec.topology.machines == 1:
        return False
    return any(
        event.get("event") == "broke" and event.get("kind") == "lost"
        for rank in range(spec.topology.world_size)
        for event in _last_events(run, rank)
    )


def unfinished(run: RunDir, spec: Spec) -> list[int]:
    """Ranks whose last word is not here yet."""
    present(run.events(0))  # asks a network file system again
    ranks = range(spec.topology.world_size)
    return [rank for rank in ranks if not any(e.get("event") in ("finished", "broke") for e in _last_events(run, rank))]


def last_sign(run: RunDir, spec: Spec) -> float | None:
    """When a rank last wrote something."""
    times = [
        float(event["t"])
        for rank in range(spec.topology.world_size)
        for event in _last_events(run, rank)
        if "t" in event
    ]
    return max(times, default=None)
