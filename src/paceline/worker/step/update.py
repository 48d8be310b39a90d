"""The last third of every step: the rate of this step, a gradient that is too long or not finite, and torch's optimizer."""

from __future__ import annotations

from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.optim.rates import Rates
from paceline.worker.sharding.sharding import Sharding
from paceline.worker.step import clip
from paceline.worker.step.state import TrainState
from paceline.worker.world.seed import random_states, same_states


class Update:
    """Norms are those of the whole model, so every rank decides alike."""

    def __init__(self, state: TrainState, sharding: Sharding, rates: Rates, *, clip: float | None) -> None:
        self.state, self.sharding, self.rates, self.clip = state, sharding, rates, clip
        self._looks = sharding.share.num > 1  # at the first update
        state.on_put_back.append(rates.forget)

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        return self.state.optimizer

    def begin(self) -> None:
        """Before the forward pass: the rate of this step, and no gradient of the last one."""
        self.advance()
        self.optimizer.zero_grad(set_to_none=True)

    def advance(self) -> None:
        """Moves the run on by one step, and sets the rate of it. A graph of the step has no gradients to clear."""
        position = self.state.position
        self.rates.set(position.iteration)
        position.iteration += 1
        position.in_epoch += 1

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss if self.state.scale is None else loss * self.state.scale.value

    def __call__(self) -> None:
        """After the reduction. Under fp16 an update with a gradient that is not finite is skipped and counted;
        elsewhere the loss shows it."""
        if self._accepts():
            if self._looks:
                self._refuse_random()
            else:
                self.optimizer.step()
        self.sharding.synchronize()  # under local SGD the others may average after this step

    def _refuse_random(self) -> None:
        """The first update. Each rank makes it for itself: with random numbers of its own its weights would part from the others'."""
        self._looks = False
        device = self.state.device
        before = random_states(device)
        self.optimizer.step()
        if not same_states(before, random_states(device)):
            raise RunFailed(
                f"{type(self.optimizer).__name__}.step() draws random numbers, and each of {self.sharding.share.num} ranks would draw its "
                "own, so that they would train different models: draw from a torch.Generator with a fixed seed, or use on=1x1",
                kind="task",
            )

    def _accepts(self) -> bool:
        """Gradients unscaled and clipped; whether they may be used."""
        scale = self.state.scale
        if self.clip is None and scale is None:
            return True
        norm = self.sharding.norm()
        if scale is not None:
            norm = norm / scale.value
            by = torch.tensor(1 / scale.value, device=norm.device)  # the scale of this step: `accepts` moves it
            if not scale.accepts(norm):
                return False
            self._multiply(by)
        if self.clip is not None:
            self.count(norm)
            self._multiply(clip.factor(norm, self.clip))
        return True

    def _multiply(self, by: torch.Tensor) -> None:
        for gradient in self.sharding.gradients():
            gradient.mul_(by)

    def count(self, norm: torch.Tensor) -> None:
        """A norm before it was clipped; kept on the device."""
        assert self.clip is not None
        clip.count(self.state.clips, norm, self.clip)

    def read_back(self) -> dict[str, Any]:
        """Known after the steps: how often the clip was needed, how often fp16 left an update out."""
        row: dict[str, Any] = {"clip": None, "scaler": None, "rate": self.rates.read_back()}
        if self.clip is not None:
            num, longest = self.state.clips.tolist()
            row["clip"] = {"at": self.clip, "steps": int(num), "longest": longest}
        if self.state.scale is not None:
            row["scaler"] = self.state.scale.read_back()
        return row

    def check(self) -> None:
        if self.state.scale is not None and self.state.scale.stuck:
            raise RunFailed(self.state.scale.stuck, kind="nonfinite")
