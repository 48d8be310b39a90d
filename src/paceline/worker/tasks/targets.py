"""What a batch, or a sample, holds to compare outputs with, and what a model is given of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# In data with named parts, in this order.
_NAMES = ("labels", "label", "targets", "target", "y")


def target_name(names: Mapping[Any, Any]) -> Any:
    """The name of the part that a model shall find; None where there is none."""
    by_word = {str(name).lower(): name for name in names}
    return next((by_word[word] for word in _NAMES if word in by_word), None)


def targets_of(batch: Any) -> Any:
    """The last of a batch of several, of named parts the one called so, else the batch."""
    if isinstance(batch, tuple | list) and len(batch) >= 2:
        return batch[-1]
    if isinstance(batch, Mapping) and (name := target_name(batch)) is not None:
        return batch[name]
    return batch


def inputs_of(sample: Any) -> Any:
    """A sample, or a batch, without its target: what the model is given."""
    if isinstance(sample, Mapping):
        rest = {name: value for name, value in sample.items() if str(name).lower() not in _NAMES}
        return rest or sample
    return sample[:-1] if isinstance(sample, list | tuple) and len(sample) > 1 else sample
