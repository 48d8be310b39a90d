"""`paceline data fetch NAME`: public data brought to a folder, with the words that tell how to train on it.
It only connects `data/fetch.py` to the user's terminal and must not download or check anything itself."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from paceline.data import fetch as sets

_DEFAULT = "data"


def fetch(name: str, to: str | None, say: Callable[[str], None]) -> Path:
    """Fetch the set `name` into `to` (unset: ./data), saying each file as it is complete; the folder is returned."""

    def progress(file: str, done_bytes: int, total_bytes: int) -> None:
        if done_bytes == total_bytes:
            say(f"{file}: {done_bytes:,} bytes")

    folder = sets.fetch(name, Path(to or _DEFAULT).expanduser(), progress=progress)
    say(f"{name} is complete; train on it with data={shlex.quote(str(folder))}")
    return folder
