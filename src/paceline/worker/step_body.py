"""The functions that are traced where a whole step is one graph: backward pass and update, on tensors without numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.func import functional_call

from paceline.worker.measure.tally import LOSS
from paceline.worker.sharding.gradient_message import GradientMessage
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.single_graph_step import GraphBuffers
from paceline.worker.step import EagerStep
from paceline.worker.transform.formulas import corrections, formula, kept
from paceline.worker.transform.in_graph import total_norm
from paceline.worker.update import TINY

State = dict[str, Any]


class _All(torch.nn.Module):
    """Forward, loss and scores as the forward of one module."""

    def __init__(self, eager: EagerStep, task_module: TaskModule, graph_buffers: GraphBuffers, num: int) -> None:
        super().__init__()
        self.task_module, self._eager, self._graph_buffers, self._num = task_module, eager, graph_buffers, num

    def forward(self, batch: Any) -> tuple[torch.Tensor, Any, torch.Tensor]:
        task, arithmetic = self._eager.task, self._eager.arithmetic
        with arithmetic.autocast():
            outputs = self.task_module(batch)
        outputs = arithmetic.full_precision(outputs)
        loss, count = task.loss_sum(outputs, batch, self._num)
        with torch.no_grad():
            rows = self._graph_buffers.rows({LOSS: (loss, count), **task.score_sums(outputs, batch, self._num)})
        return loss, count, rows


class Body:
    """The functions that are traced. They are given all they work on (`state`), and see its tensors without numbers."""

    def __init__(
        self,
        eager: EagerStep,
        task_module: TaskModule,
        graph_buffers: GraphBuffers,
        wire: GradientMessage | None,
        *,
        num: int,
    ) -> None:
        self._task_module, self._graph_buffers, self._message, self._unit = task_module, graph_buffers, wire, eager.unit
        self._formula = formula(eager.update.optimizer)
        self._kept = kept(eager.update.optimizer, graph_buffers.parameters)
        self.corrections = corrections(eager.update.optimizer, graph_buffers.parameters)
        own = {id(parameter): name for name, parameter in task_module.named_parameters()}
        self._weights = {own[id(parameter)]: parameter for parameter in graph_buffers.parameters}
        self._all = _All(eager, task_module, graph_buffers, num)

    def state(self, batch: Any) -> State:
        graph_buffers = self._graph_buffers
        rate = {
            "lr": graph_buffers.rate.lr,
            **({} if graph_buffers.rate.beta is None else {"beta": graph_buffers.rate.beta}),
        }
        if self.corrections is not None:
            rate |= self.corrections.tensors
        return {
            "weights": {name: weight.detach() for name, weight in self._weights.items()},
            "buffers": dict(self._task_module.named_buffers()),
            "kept": self._kept,
            "rate": rate,
            "sums": graph_buffers.sums,
            "clips": graph_buffers.clips,
            **({} if self._message is None else {"pieces": self._message.pieces}),
            "batch": batch,
        }

    def after(self, state: State) -> State:
        """What the second graph of two works on."""
        assert self._message is not None
        both = {name: state[name] for name in ("weights", "kept", "rate", "clips")}
        return {**both, "messages": self._message.exchange.messages}

    def gradients(self, state: State, batch: Any) -> list[torch.Tensor]:
        """Of the mean, on one rank alone."""
        gradients, _ = self.backward(state, batch)
        return gradients

    def send(self, state: State, batch: Any) -> None:
        assert self._message is not None
        gradients, count = self.backward(state, batch)
        self._message.write(
            dict(zip(map(id, self._graph_buffers.parameters), gradients, strict=True)), count, state["pieces"]
        )

    def received(self, state: State) -> list[torch.Tensor]:
        assert self._message is not None
        return self._message.read(state["messages"], self._graph_buffers.parameters)

    def backward(self, state: State, batch: Any) -> tuple[list[Any], torch.Tensor]:
        """What another rank alone used has no gradient here. Loss and scores are inside what the weights are lent to: a task may
        look at its model there, too."""
        with torch.enable_grad():
            leaves = {name: weight.detach().requires_grad_() for name, weight in state["weights"].items()}
            lent = {f"task_module.{name}": tensor for name, tensor in {**leaves, **state["buffers"]}.items()}
            loss, count, rows = functional_call(self._all, lent, (batch,))
            mean = loss / (count if self._message is None else self._unit)
            gradients = torch.autograd.grad(mean, list(leaves.values()), allow_unused=self._message is not None)
        state["sums"].add_(rows)
        return list(gradients), torch.as_tensor(count) / self._unit

    # ---- the proof ----

    def num_numbers(self) -> int:
        return sum(parameter.numel() for parameter in self._graph_buffers.parameters) + 1

    @property
    def device(self) -> torch.device:
        return self._graph_buffers.parameters[0].device

    def flat(self, gradients: Sequence[Any], count: Any) -> torch.Tensor:
        pieces = [
            torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(self._graph_buffers.parameters, gradients, strict=True)
        ]
        last = torch.as_tensor(count, device=self.device).double().reshape(1)
        return torch.cat([*(piece.detach().double().reshape(-1) for piece in pieces), last])

    def eagerly(self, batch: Any) -> torch.Tensor:
        """The same of the plain step, by `.backward()`, as `EagerStep` makes it. Nothing is updated."""
        parameters = self._graph_buffers.parameters
        with torch.enable_grad():
            loss, count, _ = self._all(batch)
            (loss / (count if self._message is None else self._unit)).backward()
        found = self.flat([parameter.grad for parameter in parameters], torch.as_tensor(count) / self._unit)
        for parameter in self._task_module.parameters():
            parameter.grad = None
        return found

    def update(self, state: State, gradients: list[torch.Tensor]) -> None:
        """The same arithmetic as `Update`, where nothing may be looked at."""
        clip = self._graph_buffers.clip
        if clip is not None:
            norm = total_norm(gradients)
            long, clips = norm.double(), state["clips"]
            clips.copy_(torch.stack([clips[0] + (long > clip), torch.maximum(clips[1], long)]))
            factor = (clip / (norm + TINY)).clamp(max=1.0)
            gradients = [gradient * factor for gradient in gradients]
        self._formula(list(state["weights"].values()), gradients, state["kept"], state["rate"])
