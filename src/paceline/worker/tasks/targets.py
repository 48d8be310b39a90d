"""What a batch holds to compare outputs with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def targets_of(batch: Any) -> Any:
    """The last of a batch of several, the `labels` of named ones, else the batch."""
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        return batch[-1]
    return batch["labels"] if isinstance(batch, Mapping) and "labels" in batch else batch
