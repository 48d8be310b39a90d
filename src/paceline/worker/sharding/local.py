"""`sync_every=H`: local SGD. Each rank updates with the mean gradient of its own samples; every H steps parameters are averaged.

Clipping, norms and the optimizer's state are each rank's own. Before an evaluation and at the end the parameters are
averaged too.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.worker.measure.clock import Stopwatch
from paceline.worker.sharding.sharding import Plain
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.world.collectives import all_reduce_
from paceline.worker.world.join import World


class Local(Plain):
    def __init__(self, task_module: TaskModule, every: int, world: World, watch: Stopwatch) -> None:
        super().__init__(task_module, world)
        self.reduces_over_ranks = False
        self._every, self._watch = every, watch
        self._apart, self._longest, self._num_averaged = 0, 0, 0

    def reduce(self, count: Any) -> None:
        """A rank without a sample in a short batch has no gradient, so it makes no update; it still averages with the others."""
        for gradient in self.gradients():
            gradient.div_(count)

    def synchronize(self, *, at_once: bool = False) -> None:
        if at_once:
            if self._apart:
                self._average()
            return
        self._apart += 1
        if self._apart == self._every:
            with self._watch.aside():
                self._average()

    def state(self) -> dict[str, Any]:
        return {"apart": self._apart, "longest": self._longest, "averaged": self._num_averaged}

    def restore(self, values: dict[str, Any]) -> None:
        self._apart, self._longest, self._num_averaged = values["apart"], values["longest"], values["averaged"]

    @torch.no_grad()
    def _average(self) -> None:
        """One message. The mean has no weights, because all ranks made the same number of steps, except in short
        batches."""
        # A mean in a half format would lose what ranks differ in.
        dtype = torch.promote_types(self._parameters[0].dtype, torch.float32)
        message = torch.cat([parameter.detach().reshape(-1).to(dtype) for parameter in self._parameters])
        all_reduce_(message, self.world).div_(self.world.size)
        pieces = message.split([parameter.numel() for parameter in self._parameters])
        for parameter, piece in zip(self._parameters, pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))
        self._longest, self._apart = max(self._longest, self._apart), 0
        self._num_averaged += 1

    def read_back(self) -> dict[str, Any]:
        """`sync_every`: the most steps that really lay between two averagings; known after the steps."""
        return {"sync_every": self._longest, "averaged": self._num_averaged}
