"""How far a run is, read from the end of rank 0's events while it works. Reading only; the run never notices."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from paceline.records.layout import RunDir

_TAIL_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Progress:
    phase: str  # starting | training
    epoch: int = 0
    iteration: int = 0
    throughput: float | None = None


def peek(run: RunDir) -> Progress:
    progress = Progress("starting")
    for line in _last_lines(run.events(0)):
        try:
            event = json.loads(line)
        except ValueError:
            continue  # the first line of the tail is cut, the last may be half written
        if event.get("event") == "mark" and event["seconds"] > 0:
            progress = Progress(
                "training", event["epoch"] + 1, event["iteration"], event["num_global"] / event["seconds"]
            )
    return progress


def _last_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().split(b"\n")
