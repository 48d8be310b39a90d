"""The functions that are traced where a step is one graph: backward pass and update, on fake tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.func import functional_call

from paceline.worker.optim.graph_update import GraphUpdate
from paceline.worker.sharding.gradient_message import GradientMessage
from paceline.worker.step import clip
from paceline.worker.step.executor import StepParts
from paceline.worker.step.single_graph import GraphBuffers
from paceline.worker.tasks.forms import Loss

State = dict[str, Any]


class _ForwardLoss(torch.nn.Module):
    """Forward, loss and scores as the forward of one module."""

    def __init__(self, parts: StepParts, graph_buffers: GraphBuffers, num: tuple[int, int]) -> None:
        super().__init__()
        self.task_module = parts.task_module
        self._description, self._graph_buffers, self._num = parts.description, graph_buffers, num

    def forward(self, batch: Any) -> tuple[Loss, torch.Tensor]:
        loss, sums = self._description.forward_loss(self.task_module, batch, *self._num)
        with torch.no_grad():
            return loss._replace(figures={}), self._graph_buffers.rows(sums)


class TracedStep:
    """The functions get all they work on as `state`, and see fake tensors in its place. `message`: what ranks send each
    other. `num`: samples of this rank, and of all."""

    def __init__(
        self,
        parts: StepParts,
        update: GraphUpdate,
        graph_buffers: GraphBuffers,
        message: GradientMessage | None,
        *,
        num: tuple[int, int],
    ) -> None:
        self._parts, self._update, self._graph_buffers, self._message = parts, update, graph_buffers, message
        self._parameters, self._clip, self._unit = update.parameters, parts.update.clip, parts.state.unit
        names = {id(parameter): name for name, parameter in parts.task_module.named_parameters()}
        self._weights = {names[id(parameter)]: parameter for parameter in self._parameters}
        self._forward_loss = _ForwardLoss(parts, graph_buffers, num)

    def state(self, batch: Any) -> State:
        return {
            "weights": {name: weight.detach() for name, weight in self._weights.items()},
            "buffers": dict(self._parts.task_module.named_buffers()),
            "update": self._update.tensors(),
            "sums": self._graph_buffers.sums,
            "clips": self._parts.state.clips,
            **({} if self._message is None else {"pieces": self._message.pieces}),
            "batch": batch,
        }

    def after(self, state: State) -> State:
        """What the second of two graphs works on."""
        assert self._message is not None
        both = {name: state[name] for name in ("weights", "update", "clips")}
        return {**both, "messages": self._message.exchange.messages}

    def gradients(self, state: State, batch: Any) -> list[torch.Tensor]:
        """Of the mean, on one rank alone."""
        gradients, _ = self.backward(state, batch)
        return gradients

    def send(self, state: State, batch: Any) -> None:
        assert self._message is not None
        gradients, count = self.backward(state, batch)
        self._message.write(dict(zip(map(id, self._parameters), gradients, strict=True)), count, state["pieces"])

    def received(self, state: State) -> list[torch.Tensor]:
        assert self._message is not None
        return self._message.read(state["messages"], self._parameters)

    def backward(self, state: State, batch: Any) -> tuple[list[Any], torch.Tensor]:
        """A parameter that only other ranks used has no gradient here. Loss and scores are computed inside the
        functional call too, because a task may use its model there."""
        with torch.enable_grad():
            leaves = {name: weight.detach().requires_grad_() for name, weight in state["weights"].items()}
            lent = {f"task_module.{name}": tensor for name, tensor in {**leaves, **state["buffers"]}.items()}
            loss, rows = functional_call(self._forward_loss, lent, (batch,))
            mean = self._parts.description.divided(loss, self._unit)
            gradients = torch.autograd.grad(mean, list(leaves.values()), allow_unused=self._message is not None)
        state["sums"].add_(rows)
        return list(gradients), torch.as_tensor(loss.count) / self._unit

    def update(self, state: State, gradients: list[torch.Tensor]) -> None:
        """The same arithmetic as `Update`, without reading any value on the host."""
        gradients = clip.clipped(gradients, state["clips"], self._clip)
        self._update(list(state["weights"].values()), gradients, state["update"])

    # ---- the proof ----

    def num_numbers(self) -> int:
        return sum(parameter.numel() for parameter in self._parameters) + 1

    @property
    def device(self) -> torch.device:
        return self._parameters[0].device

    def flat(self, gradients: Sequence[Any], count: Any) -> torch.Tensor:
        pieces = [
            torch.zeros_like(parameter) if gradient is None else gradient
            for parameter, gradient in zip(self._parameters, gradients, strict=True)
        ]
        last = torch.as_tensor(count, device=self.device).double().reshape(1)
        return torch.cat([*(piece.detach().double().reshape(-1) for piece in pieces), last])

    def eagerly(self, batch: Any) -> torch.Tensor:
        """Gradients and count of the plain step, by `.backward()`, as `EagerStep` makes it. Nothing is updated."""
        with torch.enable_grad():
            loss, _ = self._forward_loss(batch)
            self._parts.description.divided(loss, self._unit).backward()
        flat = self.flat([parameter.grad for parameter in self._parameters], torch.as_tensor(loss.count) / self._unit)
        for parameter in self._parts.task_module.parameters():
            parameter.grad = None
        return flat
