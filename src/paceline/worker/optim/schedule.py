"""The learning rate of every step as a pure function of its number: nothing to save, nothing to restore, nothing to forget to call.

The shapes are those of torch's schedulers of the same names, compared with them in `tests/unit/worker/optim/test_schedule.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.base.errors import RunFailed
from paceline.spec.axes.schedules import SCHEDULES
from paceline.spec.run import Spec
from paceline.spec.steps import num_steps, steps_per_epoch

# OneCycleLR's own: a start at lr / 25, an end at a 10,000th of that, a peak after 30 % of the steps; and Adam's first beta low
# where the rate is high.
_START, _END, _PEAK = 25.0, 1e4, 0.3
_LEAST, _MOST = 0.85, 0.95


@dataclass(frozen=True, slots=True)
class Rate:
    """`beta`: Adam's first, where the schedule moves it as well; otherwise None, and it stays as it is. `groups`: the
    rate of each of the optimizer's groups, where a scheduler of the task's has set them; `lr` is the first one's."""

    lr: float
    beta: float | None = None
    groups: tuple[float, ...] = ()

    def of(self, group: int, factor: float) -> float:
        """`factor`: by how much this group's rate was the run's when the optimizer was made."""
        return self.groups[group] if self.groups else self.lr * factor


@dataclass(frozen=True, slots=True)
class Length:
    """How long the run will be: schedules by steps must know."""

    steps: int
    steps_per_epoch: int

    @property
    def epochs(self) -> int:
        """The last may be a part of one."""
        return math.ceil(self.steps / self.steps_per_epoch)


def length(spec: Spec, num_train: int) -> Length:
    return Length(num_steps(spec, num_train), steps_per_epoch(spec, num_train))


def top_lr(spec: Spec) -> float:
    """`lr`, scaled to the batch where that was asked for."""
    ratio = spec.batch / spec.lr_batch
    return spec.lr * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[spec.lr_scale]


def rate(spec: Spec, run: Length, iteration: int) -> Rate:
    """Of the update that follows `iteration` others. A warm-up multiplies whatever the schedule has for that step."""
    lr = top_lr(spec)
    if SCHEDULES[spec.schedule].moves_beta:
        return _onecycle(lr, run.steps, iteration)
    if iteration < spec.warmup:
        lr *= (iteration + 1) / spec.warmup
    return Rate(lr * _FACTORS[spec.schedule](spec, run, iteration))


def _constant(spec: Spec, run: Length, iteration: int) -> float:
    return 1 / (1 + spec.lr_decay * (iteration // run.steps_per_epoch))


def _step(spec: Spec, run: Length, iteration: int) -> float:
    return spec.schedule_factor ** (iteration // run.steps_per_epoch // spec.schedule_every)


def _exponential(spec: Spec, run: Length, iteration: int) -> float:
    return spec.schedule_factor ** (iteration // run.steps_per_epoch)


def _cosine(spec: Spec, run: Length, iteration: int) -> float:
    """It begins when the warm-up is over."""
    done = max(0, iteration - spec.warmup) / max(1, run.steps - spec.warmup)
    return (1 + math.cos(math.pi * done)) / 2


_FACTORS = {"constant": _constant, "step": _step, "exponential": _exponential, "cosine": _cosine}


def moves(spec: Spec) -> bool:
    """Whether some step has another rate than the one before it."""
    return SCHEDULES[spec.schedule].moves or bool(spec.lr_decay) or bool(spec.warmup)


def schedule(spec: Spec, run: Length) -> Callable[[int], Rate]:
    """`rate` for a run; the same object every time where nothing moves. Of our schedules; the task's own is in `own_schedule.py`."""
    if spec.warmup >= run.steps:
        raise RunFailed(
            f"warmup={spec.warmup}, but the whole run has {run.steps} steps: the rate would still be rising when it ends; use a "
            "shorter warm-up",
            kind="mismatch",
        )
    if not moves(spec):
        still = Rate(top_lr(spec))
        return lambda _: still
    return lambda iteration: rate(spec, run, iteration)


def _onecycle(lr: float, steps: int, iteration: int) -> Rate:
    """Up by a cosine to the peak, down by another; a step after the planned last one keeps the last rate."""
    peak, last = _PEAK * steps - 1, steps - 1
    at = min(iteration, last)
    low, end = lr / _START, lr / _START / _END
    if at <= peak:
        share = at / peak if peak > 0 else 1.0
        return Rate(_between(low, lr, share), _between(_MOST, _LEAST, share))
    share = (at - peak) / (last - peak)
    return Rate(_between(lr, end, share), _between(_LEAST, _MOST, share))


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
