"""The step through accelerate: the same mathematics as `EagerStep`, with accelerate's wrapper, its backward and its optimizer.

DDP averages gradients over ranks, so each rank's loss sum is scaled by (ranks / what all ranks counted): one small message a step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from paceline.base.errors import RunFailed
from paceline.worker.measure.overlap import Overlap
from paceline.worker.measure.tally import Tally
from paceline.worker.optim.scale import Skips
from paceline.worker.sharding.ddp import ddps_words
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.step.executor import StepParts
from paceline.worker.step.input import StepInput
from paceline.worker.tasks.task import Task, users_code
from paceline.worker.transform.accelerated import Prepared
from paceline.worker.transform.flow import Flow
from paceline.worker.transform.precision import disagreement
from paceline.worker.world.collectives import all_reduce_


class Guarded(TaskModule):
    """Tells errors of the user's code from accelerate's, and sees the types of outputs before accelerate converts them."""

    def __init__(self, model: torch.nn.Module, task: Task, flow: Flow) -> None:
        super().__init__(model, task)
        self.flow = flow

    def forward(self, batch: Any) -> Any:
        with users_code(self.task.name, self.task.source):
            outputs = super().forward(batch)
        if self.flow.open:  # before accelerate turns half types back into fp32 for the loss
            self.flow.see(outputs)
        return outputs


class AcceleratedStep:
    """One batch, one update. What DDP sends while it still computes gradients is `hidden_s`. What follows the last bucket, and the
    exchange of counts before the backward pass, is `communication`.

    The types that layers gave in the first forward are compared with the spec before the first update.
    """

    phases: tuple[str, ...] = ("forward", "communication", "backward", "optimizer")

    def __init__(self, parts: StepParts, prepared: Prepared, flow: Flow, *, precision: str) -> None:
        self.parts, self.prepared, self.watch, self.world = parts, prepared, parts.watch, parts.world
        self.computed: tuple[str, ...] = ()
        self._flow, self._precision, self._skips = flow, precision, Skips()
        trained = sum(parameter.requires_grad for parameter in prepared.model.parameters())
        self._overlap = Overlap(parts.watch, parts.world, num_parameters=trained)
        if isinstance(prepared.model, DistributedDataParallel):
            prepared.model.register_comm_hook(None, self._overlap.hook)
        parts.state.others["accelerate"] = self

    def __call__(self, step_input: StepInput, tally: Tally) -> None:
        """One micro-batch: a rule refuses more, and DDP ranks that have none."""
        forward, communication, backward, optimize = self.phases
        description, update, optimizer = self.parts.description, self.parts.update, self.prepared.optimizer
        self.watch.switch(optimize)
        update.begin()
        ((batch, num, _),) = step_input
        self.watch.switch(forward)
        with ddps_words("wrap=accelerate"):
            outputs = self.prepared.model(batch)
        if self._flow.open:
            self._look()
        loss = description.loss(outputs, batch, num, step_input.num_global)
        tally.add(description.sums(loss, outputs, batch, num), num)
        total, count = loss.total, loss.count
        if self.world.size > 1:
            self.watch.switch(communication)
            count = float(all_reduce_(torch.tensor(float(count), dtype=torch.float64), self.world))
        self.watch.switch(backward)
        with ddps_words("wrap=accelerate"):
            self.prepared.accelerator.backward(total * self.world.size / count)
        self.watch.switch(optimize)
        norm = None
        if update.clip is not None:
            norm = self.prepared.accelerator.clip_grad_norm_(self.prepared.model.parameters(), update.clip)
        optimizer.step()
        if norm is not None and not optimizer.step_was_skipped:
            update.count(norm)
        self._skips.note(left_out=optimizer.step_was_skipped)
        if self._skips.stuck:
            raise RunFailed(self._skips.stuck, kind="nonfinite")

    def state(self) -> dict[str, Any]:
        """Of accelerate's own gradient scaler, where it has one."""
        scaler = self.prepared.accelerator.scaler
        return {"skips": self._skips.state(), "scaler": None if scaler is None else scaler.state_dict()}

    def restore(self, values: dict[str, Any]) -> None:
        scaler = self.prepared.accelerator.scaler
        if (scaler is None) != (values["scaler"] is None):
            raise RunFailed(
                "the state that should be put back is of another precision: accelerate's loss scale", kind="mismatch"
            )
        self._skips.restore(values["skips"])
        if scaler is not None:
            scaler.load_state_dict(values["scaler"])

    def _look(self) -> None:
        computed = self._flow.close()
        if why := disagreement(self._precision, computed):
            raise RunFailed(why, kind="mismatch")
        self.computed = computed

    def num_micro(self) -> int:
        return 1

    def hidden_s(self) -> float:
        return self._overlap.hidden_s()

    def read_back(self) -> dict[str, Any]:
        """`skipped_steps`: updates the gradient scaler of fp16 left out because a gradient was not finite."""
        return {
            "wrap": "accelerate",
            "graph": "eager",
            "graph_of": None,
            "accumulate": 1,
            "accelerate": {**self.prepared.read_back(), **self._skips.read_back()},
        }

    def num_made(self) -> int | None:
        return None

    def finish(self) -> dict[str, Any] | None:
        return None

    def close(self) -> None:
        """Nothing is open."""
