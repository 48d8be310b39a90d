"""Forward pass, loss and score of a task that defines none: torch's usual answers, where what they mean is certain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from paceline.base.errors import RunFailed
from paceline.worker.tasks.forms import Sums
from paceline.worker.tasks.named_batch import classes_within, goes_in_by_name, loss_within

_IGNORED = -100  # torch's own sign for a target that counts for nothing
_SAY = "define loss(outputs, batch)"


def usual_forward(model: torch.nn.Module, batch: Any) -> Any:
    """(inputs, targets) -> model(inputs), spread out when the inputs are several; named parts by their names, where the model has
    parameters for them; any other batch goes in whole."""
    inputs = batch
    if isinstance(batch, tuple | list) and len(batch) > 1:
        inputs = batch[0] if len(batch) == 2 else tuple(batch[:-1])
        if isinstance(inputs, dict):  # asked here: torch's compiler cannot follow `inputs is not batch`
            return model(**inputs)
    if isinstance(inputs, tuple | list):
        return model(*inputs)
    if isinstance(batch, Mapping) and goes_in_by_name(model, batch):
        return model(**batch)
    return model(inputs)


def several_inputs(batch: Any) -> int:
    """How many parts of a batch a model is given one by one; 0 for one, or by their names."""
    return len(batch) - 1 if isinstance(batch, tuple | list) and len(batch) > 2 else 0


def usual_loss(outputs: Any, batch: Any) -> Any:
    """Cross entropy for integer targets, mean squared error for floating ones; as (sum, count), so that N ranks divide right. A model's
    own loss is taken as it is: one number, of which the probe finds out what it is."""
    if (own := loss_within(outputs)) is not None:
        return own
    outputs, target = _pair(outputs, batch)
    if not target.is_floating_point():
        if not _are_classes(outputs, target):
            raise RunFailed(_no_classes(outputs, target), kind="task")
        return functional.cross_entropy(outputs, target, reduction="sum"), (target != _IGNORED).sum()
    if not _same_numbers(outputs, target):
        raise RunFailed(
            f"the model returns shape {list(outputs.shape)} and the targets have shape {list(target.shape)}: they must match, but for "
            f"dimensions of size 1; reshape one of them, or {_SAY}",
            kind="task",
        )
    return functional.mse_loss(outputs.reshape(target.shape), target, reduction="sum"), target.numel()


def usual_score(outputs: Any, batch: Any) -> Sums:
    """Accuracy for integer targets; mean absolute error for floating ones; nothing where there is no usual answer."""
    if (own := classes_within(outputs, batch)) is not None:
        outputs, batch = own[0], own
    target = batch[-1] if isinstance(batch, tuple | list) and len(batch) >= 2 else None
    if not isinstance(outputs, torch.Tensor) or not isinstance(target, torch.Tensor):
        return {}
    if target.is_floating_point():
        if not _same_numbers(outputs, target):
            return {}
        error = (outputs.reshape(target.shape) - target).abs()
        return {"mae": (error.sum(), error.numel())}
    if not _are_classes(outputs, target):
        return {}
    counted = target != _IGNORED
    return {"accuracy": (((outputs.argmax(dim=1) == target) & counted).sum(), counted.sum())}


def doubt(outputs: Any, batch: Any) -> str | None:
    """What was guessed where the usual loss is not the only likely one, and how to say it; None where it is certain."""
    outputs, target = _pair(outputs, batch)
    if not target.is_floating_point():
        if target.dim() > 1 and outputs.shape[1] == outputs.shape[2]:
            return (
                f"the model returns shape {list(outputs.shape)}, in which classes could be the second dimension or the last; taken as the "
                f"second, as torch does: {_SAY} if it is the other"
            )
        return None
    if target.numel() and bool(((target == 0) | (target == 1)).all()):
        return (
            "the targets are floating numbers, all of them 0 or 1, and the loss is taken to be the mean squared error; for labels, "
            f"{_SAY} with binary_cross_entropy_with_logits, or give them as integers for cross entropy"
        )
    rows = target.reshape(len(target), -1)
    if rows.shape[1] > 1 and bool((rows >= 0).all()) and torch.allclose(rows.sum(1), torch.ones_like(rows[:, 0])):
        return (
            "the targets of each sample are floating numbers that add up to 1, and the loss is taken to be the mean squared error; if they "
            f"are probabilities of classes, {_SAY} with cross_entropy"
        )
    return None


def _pair(outputs: Any, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    target = batch[-1] if isinstance(batch, tuple | list) and len(batch) >= 2 else None
    if not isinstance(outputs, torch.Tensor) or not isinstance(target, torch.Tensor):
        raise RunFailed(
            "the task defines no loss(outputs, batch), and there is no usual one when the model returns a "
            f"{type(outputs).__name__} for a batch that is a {type(batch).__name__}: define it",
            kind="task",
        )
    return outputs, target


def _are_classes(outputs: torch.Tensor, target: torch.Tensor) -> bool:
    """One number for each of several classes, in the second dimension. One number alone for two classes is another loss."""
    return outputs.dim() == target.dim() + 1 and outputs.shape[1] >= 2 and outputs[:, 0].shape == target.shape


def _no_classes(outputs: torch.Tensor, target: torch.Tensor) -> str:
    given = f"the model returns shape {list(outputs.shape)} for integer targets of shape {list(target.shape)}"
    if outputs.dim() == target.dim() + 1 and outputs[..., 0].shape == target.shape and outputs.shape[-1] >= 2:
        return f"{given}: classes must be the second dimension; return outputs.movedim(-1, 1), or {_SAY}"
    if _same_numbers(outputs, target):
        return (
            f"{given}: one number for each target is no classification; return one for each class, make the targets floating numbers "
            f"(mean squared error), or {_SAY} (binary_cross_entropy_with_logits)"
        )
    return f"{given}, and cross entropy needs one number for each class in the second dimension; or {_SAY}"


def _same_numbers(outputs: torch.Tensor, target: torch.Tensor) -> bool:
    """Equal shapes, but for dimensions of size 1 after the first: [N, 1] against [N] would broadcast to [N, N], and [N, C, T] is
    not [N, T, C]."""
    return outputs.shape == target.shape or (
        outputs.dim() > 0
        and target.dim() > 0
        and len(outputs) == len(target)
        and [size for size in outputs.shape[1:] if size != 1] == [size for size in target.shape[1:] if size != 1]
    )
