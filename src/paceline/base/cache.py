"""Where things are kept from one command to the next that can always be made again: compiled code, trials. Never a result."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(name: str) -> Path:
    """`PACELINE_CACHE`, or the user's own cache folder; readable by nobody else, because code is loaded from it."""
    root = os.environ.get("PACELINE_CACHE") or str(
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paceline"
    )
    folder = Path(root) / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
