"""The parent's only reader of the environment; what it reads is handed on as plain values. It changes nothing.

A rank's variables are another matter: `worker/world/env.py` reads those, and writes where a library insists.
"""

from __future__ import annotations

import os


def variables() -> dict[str, str]:
    """All there are now: what a child process begins with."""
    return dict(os.environ)


def variable(name: str) -> str:
    """Empty where it is not set, because an empty one means the same everywhere here."""
    return os.environ.get(name, "")
