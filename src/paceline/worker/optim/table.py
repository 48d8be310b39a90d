"""The update rules by the setting's words. A new optimizer is a file in this room and a row here."""

from __future__ import annotations

import torch

from paceline.worker.optim.adam import ADAM, ADAMW
from paceline.worker.optim.rmsprop import RMSPROP
from paceline.worker.optim.rule import UpdateRule
from paceline.worker.optim.sgd import SGD

RULES: dict[str, UpdateRule] = {"adam": ADAM, "adamw": ADAMW, "sgd": SGD, "rmsprop": RMSPROP}


def rule_of(optimizer: torch.optim.Optimizer) -> UpdateRule | None:
    """By its exact class: a user's subclass may compute something else."""
    return next((rule for rule in RULES.values() if type(optimizer) is rule.torch_class), None)
