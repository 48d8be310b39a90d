"""What a record says of number formats, in words: what flowed through the model, and updates that fp16 left out."""

from __future__ import annotations

from typing import Any

from paceline.records.record import Record


def _applied(record: Record) -> dict[str, Any]:
    return record.plain.get("applied") or {}


def left_out(record: Record) -> tuple[int, int]:
    """(updates that were left out because a gradient was not finite, all of them); (0, 0) where nothing is ever left out."""
    applied = _applied(record)
    row: dict[str, Any] = applied.get("scaler") or applied.get("accelerate") or {}
    return row.get("skipped_steps") or 0, row.get("steps") or 0


def left_out_in_words(num: int, of: int) -> str:
    """
    >>> left_out_in_words(3, 900)
    '3 of 900 updates were left out, because their gradients were not finite in fp16'
    """
    return f"{num} of {of} updates were left out, because their gradients were not finite in fp16"


def flowed(record: Record) -> str | None:
    """The dtypes of weights and of what layers gave, as torch names them; None where the run does not tell."""
    applied = _applied(record)
    dtypes: dict[str, list[str]] = applied.get("dtypes") or {}
    if not dtypes.get("parameters"):
        return None
    said = f"weights {' and '.join(dtypes['parameters'])}"
    if dtypes.get("compute"):
        said += f", layers gave {' and '.join(dtypes['compute'])}"
    tf32: dict[str, bool] = applied.get("tf32") or {}
    if any(tf32.values()):
        said += ", products rounded to TF32"
    if fp8 := applied.get("fp8"):
        said += f", {fp8.get('ran') or 0} of {fp8.get('linear_layers')} linear layers in fp8"
    return said
