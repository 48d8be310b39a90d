"""How the gradients of a task's own step recombine: the step is made on samples of the task, with updates left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.worker.optim.own import build_own
from paceline.worker.probe.losses import Term, Terms, thinned
from paceline.worker.probe.subject import Places, Subject
from paceline.worker.tasks.hooks import call
from paceline.worker.tasks.task import Task

_LR = 1e-3  # nothing is updated


class OwnSteps:
    """`terms` has the gradients each update would have used, in the order of the updates."""

    def __init__(self, task: Task, subject: Subject) -> None:
        self._subject, self._task = subject, task
        joint: Any = build_own(task, subject.model, _LR)
        self._optimizers: dict[str, torch.optim.Optimizer] = joint.by_name
        self._seen: Terms = {}
        for name, one in self._optimizers.items():
            one.step = self._instead_of(name, one)  # pyright: ignore[reportAttributeAccessIssue]

    def _instead_of(self, name: str, optimizer: torch.optim.Optimizer) -> Callable[..., None]:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]

        def step(closure: Any = None) -> None:
            pieces = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in parameters]
            gradient = torch.cat([thinned(piece.detach().double()) for piece in pieces])
            self._seen[f"update {len(self._seen) + 1} ({name})"] = Term(None, (gradient,), None)

        return step

    def terms(self, places: Places, *, hold: bool = True) -> Terms:
        """`hold`: BatchNorm normalises with its running statistics."""

        def what(_outputs: Any, batch: Any) -> Terms:
            self._seen = {}
            for one in self._optimizers.values():
                one.zero_grad()
            call(self._task.step, model=self._subject.model, batch=batch, optimizers=self._optimizers)
            return self._seen

        return self._subject.compute(places, what, training=True, hold=hold, forward=False)
