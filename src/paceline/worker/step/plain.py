"""Plain values that a state may hold beside its tensors: numbers, words, and lists and tables of them. JSON takes them as they are."""

from __future__ import annotations

from typing import Any

_PLAIN = (bool, int, float, str, type(None))


class NotPlain(Exception):
    """A value that JSON could not bring back as it was."""


def to_json(value: Any) -> Any:
    """A copy, so that whoever changes the original does not change what was kept. Tuples become lists."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: to_json(item) for key, item in value.items()}
    raise NotPlain(type(value).__name__)
