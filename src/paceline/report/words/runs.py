"""Runs on disk in words: one in a line, and what may be said of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ONE_RUN_EACH = "too few runs: one run each shows no difference; repeat them in a study"


def score_in_words(name: str, value: float) -> str:
    return f"{name} {value:.4f}"


def summary(row: Mapping[str, Any]) -> list[str]:
    """The columns of `paceline runs list`, from what `--json` prints."""
    score = score_in_words(row["score_name"], row["score"]) if row["score"] is not None else ""
    training = f"{row['training_s']:.1f} s" if row["training_s"] is not None else ""
    if row["profile"]:
        training = f"profile of {row['profile']}"
    settings = " ".join(f"{name}={said(value)}" for name, value in row.get("settings", {}).items())
    return [row["run"], row["task"], row["on"], settings, row["outcome"], score, training, row["finished"] or ""]


def said(value: Any) -> str:
    """A setting's value as it is typed; one that was not given is `none`.

    >>> said(True), said(None), said(0.1)
    ('true', 'none', '0.1')
    """
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
