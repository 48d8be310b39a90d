"""Whether a model makes other gradients of its own: clipped ones, signs, by a hook of a parameter or module or a function of autograd. What
is not proportional to the loss cannot be done for each part of a batch and then added up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from paceline.spec.verdict import Verdict
from paceline.worker.probe.subject import Places, Subject
from paceline.worker.tasks.forms import added
from paceline.worker.tasks.returned import loss_terms

_FACTOR = -float(1 << 20)  # a power of two: nothing is rounded by it


def hooked(parameter: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient as those hooks leave it that are called once it is in its place: `torch.autograd.grad` does not call them."""
    hooks = getattr(parameter, "_post_accumulate_grad_hooks", None)
    if not hooks:
        return gradient
    before, parameter.grad = parameter.grad, gradient.detach().clone()
    for hook in list(hooks.values()):
        hook(parameter)
    gradient, parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad, before
    return gradient


_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks")


def has_hooks(held: Iterable[torch.nn.Module | torch.nn.Parameter]) -> bool:
    """On gradients of parameters or modules, as far as they show: a function of autograd does not."""
    return any(getattr(one, name, None) for one in held for name in _HOOKS)


def bends_gradients(subject: Subject, places: Places, tolerance: float) -> bool:
    """Whether gradients of so many times the loss are not as many times the gradients."""
    parameters = subject.parameters

    def what(outputs: Any, batch: Any) -> bool:
        forms = loss_terms(subject.task.loss(outputs, batch), Verdict(), name=subject.task.name)
        value = added(form.number for form in forms.values())
        one, many = (
            torch.autograd.grad(factor * value, parameters, retain_graph=True, allow_unused=True)
            for factor in (1.0, _FACTOR)
        )
        pairs = [
            (hooked(parameter, a).to_dense().double() * _FACTOR, hooked(parameter, b).to_dense().double())
            for parameter, a, b in zip(parameters, one, many, strict=True)
            if a is not None and b is not None
        ]
        finite = [(a, b) for a, b in pairs if bool(torch.isfinite(b).all())]
        # of all together: a gradient may be nothing but rounding where it ought to be zero
        apart, size = (
            float(sum(x.square().sum() for x in xs)) ** 0.5
            for xs in ([a - b for a, b in finite], [a for a, _ in finite])
        )
        return apart > tolerance * size

    return subject.compute(places, what, training=True)
