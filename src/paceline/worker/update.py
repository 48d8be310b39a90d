"""The last third of every step: the rate of this step, a gradient that is too long or not finite, and torch's optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.sharding.sharding import Sharding
from paceline.worker.transform.optim import set_rate
from paceline.worker.transform.scale import LossScale
from paceline.worker.transform.schedule import Rate

TINY = 1e-6  # as in torch's clip_grad_norm_


def _six_digits(rate: float) -> float:
    """A rate that is a tensor is in fp32."""
    return float(f"{rate:.6g}")


class Update:
    """`scale` is there for fp16 only. Norms are those of the whole model, so every rank decides alike."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, sharding: Sharding, schedule: Callable[[int], Rate],
        *, clip: float | None, scale: LossScale | None,
    ) -> None:  # fmt: skip
        self.optimizer, self.sharding, self.schedule = optimizer, sharding, schedule
        self.clip, self.scale = clip, scale
        self.iteration = 0
        self.rate: Rate | None = None
        self._num_clipped: Any = 0
        self._longest: Any = 0.0

    @property
    def lr(self) -> float:
        """Of the last update."""
        return (self.rate or self.schedule(0)).lr

    def begin(self) -> None:
        """Before the forward pass: the rate of this step, and no gradient of the last one."""
        self.advance()
        self.optimizer.zero_grad(set_to_none=True)

    def advance(self) -> None:
        """The rate of this step alone."""
        rate = self.schedule(self.iteration)
        self.iteration += 1
        if rate != self.rate:
            set_rate(self.optimizer, rate)
            self.rate = rate

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss if self.scale is None else loss * self.scale.value

    def __call__(self) -> None:
        """After the reduction. A gradient that is not finite is left out under fp16 (and counted); elsewhere the loss will say so."""
        if self.clip is not None or self.scale is not None:
            norm = self.sharding.norm()
            if self.scale is not None:
                norm = norm / self.scale.value
                factor = 1 / self.scale.value
                if not self.scale.accepts(norm):
                    self.sharding.after_update()  # under local SGD the others may average after this step
                    return
                self.sharding.scale(torch.tensor(factor, device=norm.device))
            if self.clip is not None:
                self.note(norm)
                self.sharding.scale((self.clip / (norm + TINY)).clamp(max=1.0))
        self.optimizer.step()
        self.sharding.after_update()

    def note(self, norm: torch.Tensor) -> None:
        """A norm before it was clipped; kept on the device."""
        self._longest = torch.maximum(torch.as_tensor(self._longest, device=norm.device, dtype=norm.dtype), norm)
        assert self.clip is not None
        self._num_clipped = self._num_clipped + (norm > self.clip)

    def noted(self, num: Any, longest: Any) -> None:
        """The same of steps that counted by themselves: a graph has its own numbers for it."""
        self._num_clipped = int(self._num_clipped) + int(num)
        self._longest = max(float(self._longest), float(longest))

    def read_back(self) -> dict[str, Any]:
        """Known after the steps: how often the clip was needed, how often fp16 left an update out."""
        row: dict[str, Any] = {"clip": None, "scaler": None, "rate": self._rate()}
        if self.clip is not None:
            row["clip"] = {"at": self.clip, "steps": int(self._num_clipped), "longest": float(self._longest)}
        if self.scale is not None:
            row["scaler"] = self.scale.read_back()
        return row

    def _rate(self) -> dict[str, Any]:
        """Of the last step: in the optimizer's groups, and as the schedule has it."""
        groups = self.optimizer.param_groups
        betas = {group["betas"][0] for group in groups if "betas" in group}
        return {
            "lr": sorted({_six_digits(float(group["lr"])) for group in groups}),
            "scheduled": _six_digits(self.lr),
            **({"beta": sorted(float(beta) for beta in betas)} if betas else {}),
        }

    def check(self) -> None:
        if self.scale is not None and self.scale.stuck:
            raise RunFailed(self.scale.stuck, kind="nonfinite")
