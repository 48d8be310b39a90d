"""A step that the task makes itself, with several optimizers (a GAN, actor and critic): `step(model, batch, optimizers)`. What it computes
in which order is the task's; the ranks, the rates and the clock are ours.

Every rank calls it with its part of the batch. Just before an optimizer updates, the gradients of its parameters are averaged over the
ranks, so all ranks make the update of the whole batch. The probe has found out beforehand that gradients recombine in that way.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.measure.tally import Tally
from paceline.worker.optim.joint import Joint
from paceline.worker.sharding.replicate import Replicated
from paceline.worker.step.executor import StepParts
from paceline.worker.step.input import StepInput
from paceline.worker.tasks.hooks import call
from paceline.worker.tasks.returned import step_figures
from paceline.worker.world.collectives import agree

STEP = "step"
_DONE = -1  # what a rank tells the others when its step is over


class OwnStep:
    """All of its time goes to the part `step`, but for messages between ranks."""

    phases: tuple[str, ...] = (STEP,)

    def __init__(self, parts: StepParts) -> None:
        optimizer = parts.state.optimizer
        assert isinstance(optimizer, Joint)
        self.parts, self.watch, self.optimizers = parts, parts.watch, optimizer.by_name
        self._num = self._num_updates = self._num_micro = 0
        self._reduce: list[Replicated] = []
        for index, one in enumerate(self.optimizers.values()):
            mine = {id(parameter) for group in one.param_groups for parameter in group["params"]}
            others = [p for p in parts.task_module.model.parameters() if id(p) not in mine]
            self._reduce.append(Replicated(parts.task_module, parts.world, apart=others))
            one.register_step_pre_hook(partial(self._before_update, index))

    @property
    def computed(self) -> tuple[str, ...]:
        return self.parts.description.arithmetic.computed

    def __call__(self, step_input: StepInput, tally: Tally) -> None:
        module, task = self.parts.task_module, self.parts.task_module.task
        self.watch.switch(STEP)
        self.parts.update.advance()
        for batch, num, _ in step_input:
            self.watch.switch(STEP)
            self._num, self._num_updates = num, 0
            entered = batch if module.entrance is None else module.entrance(batch)
            self._run(entered, tally)
            if self.parts.description.arithmetic.looking:
                self.parts.description.arithmetic.look(None)
            self._num_micro = 1
        self._meet(_DONE, f"{task.name}: step: one rank's step is over, and another's makes one more update")

    def _run(self, batch: Any, tally: Tally) -> None:
        task, model = self.parts.task_module.task, self.parts.task_module.model
        value = call(task.step, model=model, batch=batch, optimizers=self.optimizers)
        with torch.no_grad():
            tally.add(step_figures(value, task.verdict, self._num, name=task.name), self._num)

    def _before_update(self, index: int, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Called by torch at the beginning of `optimizer.step()`."""
        name = self.parts.task_module.task.name
        if len(args) > 1 or kwargs.get("closure") is not None:  # the first is the optimizer
            raise RunFailed(
                f"{name}: step: an optimizer was given a closure, which computes the loss again in the middle of an update: use an "
                "optimizer that needs none",
                kind="task",
            )
        if self.parts.world.size == 1:
            return
        self._num_updates += 1
        self._meet(
            self._num_updates * len(self.optimizers) + index,
            f"{name}: step: the ranks do not update with the same optimizers in the same order, so what they do must depend on their "
            "samples: use on=1x1",
        )
        self._average(self._reduce[index], optimizer)
        self.watch.switch(STEP)

    def _average(self, reduce: Replicated, optimizer: torch.optim.Optimizer) -> None:
        """Of gradients of means over this rank's samples, or of sums over them, as the probe has found."""
        if self.parts.task_module.task.verdict.loss == "total":
            reduce.exchange(float(self.parts.world.rank == 0))  # added up, and divided by one
            return
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        for gradient in gradients:
            gradient.mul_(self._num)
        reduce.exchange(float(self._num))

    def _meet(self, code: int, otherwise: str) -> None:
        """Every rank is at the same place of its step; if not, they would wait for each other, or mix up gradients."""
        if self.parts.world.size == 1:
            return
        self.watch.switch("communication")
        low, high = agree(code, self.parts.world)
        self.parts.world.count("all_reduce", 8)
        if low != high:
            raise RunFailed(otherwise, kind="task")

    def hidden_s(self) -> float:
        return 0.0

    def read_back(self) -> dict[str, Any]:
        return {"wrap": "none", "graph": "eager", "graph_of": None}

    def num_made(self) -> int | None:
        return None

    def finish(self) -> dict[str, Any] | None:
        return None

    def close(self) -> None:
        """Nothing is open."""

    def num_micro(self) -> int:
        return self._num_micro
