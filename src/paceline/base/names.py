"""Unknown names answered with the nearest known one. Pure string work; it prints nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_AT_A_GLANCE = 20


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known name most like `name`, or None when nothing is close.

    >>> nearest("precison", ["precision", "batch"])
    'precision'
    """
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)
    return matches[0] if matches else None


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """One sentence for a name nobody knows: what was typed, the nearest name, the valid ones if they can be read at a glance.

    >>> unknown("setting", "bach", ["batch", "lr"])
    "unknown setting 'bach'; did you mean 'batch'? (known: batch, lr)"
    """
    names = list(known)
    close = nearest(name, names)
    hint = f"; did you mean {close!r}?" if close else ""
    if close and len(names) > _AT_A_GLANCE:
        return f"unknown {what} {name!r}{hint}"
    return f"unknown {what} {name!r}{hint} (known: {', '.join(names)})"
