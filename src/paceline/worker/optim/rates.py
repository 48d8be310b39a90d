"""The learning rate of a step, put into the optimizer's groups, and into the tensors that a graph reads it from.

A group whose rate was a multiple of the run's when the optimizer was made (a task's own groups) keeps that multiple, unless a
scheduler of the task's sets the rate of each group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.worker.optim.rule import Group
from paceline.worker.optim.schedule import Rate


def _six_digits(rate: float) -> float:
    """Rounded for the comparison: a rate that is a tensor is in fp32."""
    return float(f"{rate:.6g}")


class Rates:
    """`schedule`: iteration -> rate. `top`: the learning rate that the optimizer was made with. `moves`: the schedule has several."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, schedule: Callable[[int], Rate], top: float, *, moves: bool = True
    ) -> None:
        self._groups, self._schedule, self.moves = optimizer.param_groups, schedule, moves
        self.factors = [float(group["lr"]) / top for group in self._groups]
        self.current: Rate | None = None  # of the last update
        self.moves_beta = schedule(0).beta is not None and any("betas" in group for group in self._groups)

    @property
    def lr(self) -> float:
        """Of the last update; before the first one, the first one's."""
        return (self.current or self._schedule(0)).lr

    def at(self, iteration: int) -> float:
        return self._schedule(iteration).lr

    def set(self, iteration: int) -> None:
        rate = self._schedule(iteration)
        if rate is self.current or rate == self.current:  # where nothing moves it is the same object in every step
            return
        for index, (group, factor) in enumerate(zip(self._groups, self.factors, strict=True)):
            lr = rate.of(index, factor)
            if isinstance(group["lr"], torch.Tensor):  # a captured step reads it from there
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr
            if rate.beta is not None and "betas" in group:  # the momentum of sgd and rmsprop is a setting, and stays
                group["betas"] = (rate.beta, group["betas"][1])
        self.current = rate

    def forget(self) -> None:
        """The groups may hold other values by now: the next `set` writes all of them."""
        self.current = None

    def read_back(self) -> dict[str, Any]:
        """Of the last step: in the optimizer's groups, and as the schedule has it."""
        betas = {group["betas"][0] for group in self._groups if "betas" in group}
        rate = self.current or self._schedule(0)
        expected = sorted({_six_digits(rate.of(index, factor)) for index, factor in enumerate(self.factors)})
        return {
            "lr": sorted({_six_digits(float(group["lr"])) for group in self._groups}),
            "scheduled": _six_digits(self.lr),
            **({"beta": sorted(float(beta) for beta in betas)} if betas else {}),
            **({"groups": expected} if expected != [_six_digits(self.lr)] else {}),
        }


class RateInTensors:
    """One group's rate as a graph reads it: `lr`, and Adam's first beta where the schedule moves that too."""

    def __init__(self, group: Group, like: torch.Tensor, *, index: int, factor: float, moves_beta: bool) -> None:
        # torch's fused SGD reads its rate as float32, whatever the weights are
        dtype = torch.float64 if like.dtype == torch.float64 and not group.get("fused") else torch.float32
        self._index, self._factor = index, factor
        self.tensors = {"lr": torch.full((), float(group["lr"]), dtype=dtype, device=like.device)}
        if moves_beta and "betas" in group:
            self.tensors["beta"] = torch.full((), group["betas"][0], dtype=dtype, device=like.device)

    def fill(self, rate: Rate) -> None:
        """Written without waiting for the device."""
        self.tensors["lr"].fill_(rate.of(self._index, self._factor))
        if rate.beta is not None and "beta" in self.tensors:
            self.tensors["beta"].fill_(rate.beta)
