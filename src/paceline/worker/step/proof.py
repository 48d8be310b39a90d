"""Before a trace is compiled, it is run operator by operator and compared with the plain step on one batch.

If gradients, buffers or updates differ, it is refused. Hooks on gradients, random states set in Python and numbers kept
outside of the model do not show in a trace.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.optim.graph_update import GraphUpdate
from paceline.worker.optim.own import LOST
from paceline.worker.step.state import TrainState
from paceline.worker.step.traced import State, TracedStep
from paceline.worker.transform.side_effects import numbers_in
from paceline.worker.transform.tracing import trace
from paceline.worker.world.seed import kept

# The same arithmetic on the same numbers: on a GPU the order of sums differs, and where gradients are computed in another way and
# factors are rounded, what is rounded.
_SAME, _SAME_ROUNDED = 1e-3, 1e-2
Given = Callable[[State], Any]  # the batch, from the state


class Proof:
    """`moving`: tensors besides the state that a rehearsal changes; all are restored afterwards. `instead`: operators
    that the trace computes in another way. `rounds`: factors of products have fewer digits than fp32."""

    def __init__(
        self, traced: TracedStep, moving: Sequence[torch.Tensor], *, instead: Any, rounds: bool, asked: str
    ) -> None:
        self._traced, self._moving, self._instead, self._asked = traced, list(moving), instead, asked
        self._same = _SAME_ROUNDED if instead is not None and rounds else _SAME

    def gradients(self, state: State, given: Given) -> None:
        """Of the parameters, with what they count to, and what a forward pass leaves in the buffers."""
        step = self._traced
        flat = torch.zeros(step.num_numbers(), dtype=torch.float64, device=step.device)
        graph = trace(
            lambda s: s["proof"].copy_(step.flat(*step.backward(s, given(s)))), {**state, "proof": flat}, self._instead
        )
        moving = [*state["buffers"].values(), state["sums"], *self._moving]
        with _untouched(moving, step.device):
            with torch.no_grad():
                graph.graph(*graph.inputs)
            after = [buffer.clone() for buffer in state["buffers"].values()]
        with _untouched(moving, step.device):
            plain = step.eagerly(given(state))
            theirs = [buffer.clone() for buffer in state["buffers"].values()]
        apart = max(_apart(flat[:-1], plain[:-1]), _apart(flat[-1:], plain[-1:]))
        moved = [
            name for name, one, other in zip(state["buffers"], after, theirs, strict=True)
            if not alike(one.double(), other.double(), self._same)
        ]  # fmt: skip
        if apart > self._same or moved:
            self._refuse(
                f"gradients ({apart:.1g} apart)" if apart > self._same else f"buffers ({', '.join(moved[:3])})"
            )

    def own_update(self, train_state: TrainState, update: GraphUpdate, state: State) -> None:
        """For a task's own optimizer, whose `step()` is traced: it must give the same weights as untraced, from the
        same made-up gradients."""
        if not update.is_own:
            return
        optimizer, weights = train_state.optimizer, list(state["weights"].values())
        gradients = [torch.linspace(-0.5, 0.5, w.numel(), dtype=w.dtype, device=w.device).view_as(w) for w in weights]
        graph = trace(
            lambda s: update(list(s["weights"].values()), s["gradients"], s["update"]),
            {"weights": state["weights"], "update": state["update"], "gradients": gradients}, self._instead,
        )  # fmt: skip
        with train_state.rehearsal():
            for parameter, gradient in zip(update.parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            before = _counted(optimizer)
            optimizer.step()
            lost = [name for name, value in _counted(optimizer).items() if before.get(name) != value]
            optimizer.zero_grad(set_to_none=True)
            plain = [weight.clone() for weight in weights]
        with train_state.rehearsal():
            with torch.no_grad():
                graph.graph(*graph.inputs)
            apart = max(_apart(weight.double(), other.double()) for weight, other in zip(weights, plain, strict=True))
        update.forget()  # step() may have put other tensors in place of its state's
        if lost:
            raise RunFailed(
                LOST.format(asked=self._asked, name=type(optimizer).__name__, what=lost[0]), kind="mismatch"
            )
        if apart > self._same:
            self._refuse(f"weights after optimizer.step() ({apart:.1g} apart)")

    def _refuse(self, what: str) -> None:
        raise RunFailed(
            f"{self._asked}: traced as one graph, the step has other {what} than eagerly: something does not show in a trace (hooks on "
            "parameters, random states set in Python, numbers that are kept outside of tensors); use graph_of=model, or graph=eager",
            kind="mismatch",
        )


def _counted(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The numbers of its attributes; those of its groups and states are looked at where it is traced."""
    return numbers_in({name: value for name, value in vars(optimizer).items() if name not in ("state", "param_groups")})


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp(min=1e-30))


def alike(one: torch.Tensor, other: torch.Tensor, same: float) -> bool:
    """Differences are relative to the largest value: a mean near zero of large values is inexact where factors are
    rounded."""
    size = max(1.0, float(other.abs().nan_to_num(0.0, 0.0, 0.0).max())) if other.numel() else 1.0
    return torch.allclose(one, other, rtol=same, atol=same * size, equal_nan=True)


@contextlib.contextmanager
def _untouched(tensors: list[torch.Tensor], device: torch.device) -> Generator[None]:
    """Around a rehearsal: these tensors and the random states are restored afterwards."""
    before = [tensor.clone() for tensor in tensors]
    with kept(device):
        yield
    with torch.no_grad():
        for tensor, value in zip(tensors, before, strict=True):
            tensor.copy_(value)
