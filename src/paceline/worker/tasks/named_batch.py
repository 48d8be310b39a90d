"""Batches that are named inputs, and models that answer with a loss of their own, as those of transformers do when they are given `labels`.
It must not guess: what is not certain is left to the task."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from paceline.base.errors import RunFailed

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def goes_in_by_name(model: Any, batch: Mapping[Any, Any]) -> bool:
    """Whether every part of the batch is a parameter of the model's forward. A model that would swallow a part it does not know is not
    given it."""
    parameters = inspect.signature(getattr(model, "forward", model)).parameters
    unknown = [str(name) for name in batch if name not in parameters or parameters[name].kind not in _NAMED]
    known = len(batch) - len(unknown)
    if unknown and known > 1:
        raise RunFailed(
            f"the batch has {', '.join(unknown)}, which the model's forward has no parameter for, beside {known} parts that it has: leave "
            "it out of the samples, or define forward(model, batch)",
            kind="task",
        )
    return known > 0 and not unknown


def loss_within(outputs: Any) -> torch.Tensor | None:
    """The loss that a model has computed itself; None where it has not."""
    found = outputs.get("loss") if isinstance(outputs, Mapping) else None
    return found if isinstance(found, torch.Tensor) and found.numel() == 1 else None


def classes_within(outputs: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """(logits, labels), one row a sample; None where it is not certain what is compared with what: a language model's labels are shifted
    inside it."""
    if not isinstance(outputs, Mapping) or not isinstance(batch, Mapping):
        return None
    logits, labels = outputs.get("logits"), batch.get("labels")
    if not isinstance(logits, torch.Tensor) or not isinstance(labels, torch.Tensor):
        return None
    return (logits, labels) if logits.dim() == 2 and labels.dim() == 1 and len(logits) == len(labels) else None
