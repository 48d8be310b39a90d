"""Pydantic's errors said the way a user typed the mistake: `batch=abc: must be a whole number, got 'abc'`. Pure text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from paceline.base.names import nearest, unknown

_WORDS = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "model_attributes_type": "must be a mapping of names to values",
    "missing": "is required",
}


def _reason(error: Mapping[str, Any]) -> str:
    kind, bounds = error["type"], error.get("ctx", {})
    if kind in ("greater_than_equal", "greater_than", "less_than_equal", "less_than"):
        words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
        return "must be " + " and ".join(f"{words[k]} {v:.10g}" for k, v in bounds.items() if k in words)
    if kind == "literal_error":
        return f"must be {bounds['expected']}"
    if kind == "value_error":
        return str(bounds["error"])
    message = str(error["msg"])
    return _WORDS.get(str(kind), message[:1].lower() + message[1:])


def _union(location: tuple[Any, ...]) -> bool:
    """Pydantic names the tried member of a union at the end of the location; users never typed it."""
    return bool(location) and str(location[-1]).split("[")[0] in {
        "constrained-int",
        "constrained-float",
        "int",
        "float",
        "str",
        "literal",
        "function-after",
        "function-before",
        "bool",
    }


def problems(error: ValidationError, *, known: Iterable[str]) -> list[tuple[tuple[Any, ...], str]]:
    """(location, sentence) for each wrong value, one per place; union members are folded into one sentence."""
    folded: dict[tuple[Any, ...], list[str]] = {}
    values: dict[tuple[Any, ...], Any] = {}
    names = list(known)
    for item in error.errors():
        place = tuple(item["loc"])
        while _union(place):
            place = place[:-1]
        if item["type"] == "extra_forbidden":
            folded[place] = [unknown("name", str(place[-1]), names)]
            continue
        folded.setdefault(place, []).append(_reason(item))
        values[place] = item["input"]
    sentences: list[tuple[tuple[Any, ...], str]] = []
    for place, reasons in folded.items():
        text = " or ".join(dict.fromkeys(reasons)).replace(" or must be ", " or ")
        if place and place in values and not text.startswith("is required"):  # the whole file is no value to repeat
            text += f"; got {values[place]!r}"
            options = [
                word.strip("' ") for word in text.split("; got")[0].replace(" or ", ",").split(",") if "'" in word
            ]
            close = nearest(str(values[place]), [option.split("'")[-1] for option in options], likeness=0.8)
            text += f"; did you mean {close!r}?" if close else ""
        sentences.append((place, text))
    return sentences
