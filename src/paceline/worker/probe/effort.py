"""How many samples the probe has time for, and in which way: a second is what a command may spend on it, whatever the model is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paceline.worker.measure.clock import Stopwatch, busy_s
from paceline.worker.probe.subject import Places

_BUDGET_S = 1.0
# What is computed of each sample, in passes forward: a backward pass is two.
_WHOLE_PASSES, _LEAN_PASSES = 34, 8
_DOUBLE = 2  # what double precision costs at least, over single
_LEAST = 3  # one and two: a mean of means over equal parts would be right by chance
_TRIES, _TRYING_S = 3, 0.1
Forward = Callable[[Places], object]


@dataclass(frozen=True, slots=True)
class Effort:
    """`lean`: gradients are looked at where they reach the model's outputs and not behind them, and all of it on one set of weights."""

    num: int
    lean: bool


def affordable(num: int, forward: Forward) -> Effort:
    few = min(2, num)
    forward(range(few))  # libraries are loaded
    if (few_s := _seconds(forward, few)) * _WHOLE_PASSES < _BUDGET_S and num > few:
        all_s = _seconds(forward, num)  # what a small model takes is much the same for two samples and for all
    else:
        all_s = few_s / few * num
    if all_s * _WHOLE_PASSES < _BUDGET_S or num <= _LEAST:
        return Effort(num, lean=False)
    for lean, passes in ((False, _WHOLE_PASSES), (True, _LEAN_PASSES)):
        for size in (num // 2, num // 4, num // 8):
            if size > _LEAST and all_s * size / num * passes < _BUDGET_S:
                return Effort(size, lean)
    return Effort(_LEAST, lean=True)


def in_single(num: int, forward: Forward) -> Effort | None:
    """Asked in single precision, before anything is computed in double: what there is time for where not even the least look has time in
    double precision; None where it has."""
    few = min(2, num)
    forward(range(few))
    each_s = _seconds(forward, few) / few
    if num <= _LEAST or each_s * _LEAST * _LEAN_PASSES * _DOUBLE < _BUDGET_S:
        return None
    return Effort(max(_LEAST, min(num, int(_BUDGET_S / _LEAN_PASSES / each_s))), lean=True)


def _seconds(forward: Forward, num: int) -> float:
    """Of the shortest pass of several, where they are short: a machine has other work, and a verdict should stand on the same samples
    each time."""
    passes = [_pass_s(forward, num)]
    while len(passes) < _TRIES and sum(passes) < _TRYING_S:
        passes.append(_pass_s(forward, num))
    return min(passes)


def _pass_s(forward: Forward, num: int) -> float:
    """What passed, or what this process computed if that is less: on a busy machine a verdict should stand on as many samples as on a quiet
    one."""
    watch, busy = Stopwatch("probe"), busy_s()
    forward(range(num))
    return min(watch.elapsed(), busy_s() - busy)
