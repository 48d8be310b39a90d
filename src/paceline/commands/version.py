"""What `paceline --version` says: which versions are installed. They are read from the packages' own descriptions; nothing is imported."""

from __future__ import annotations

import platform

from paceline.records.fingerprint import version


def line() -> str:
    """Enough to begin a report of a defect with."""
    torch = version("torch")
    return f"paceline {version('paceline')}, {f'torch {torch}' if torch else 'no torch'}, Python {platform.python_version()}"
