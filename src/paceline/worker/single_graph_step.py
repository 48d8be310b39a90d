"""A whole step as one graph: batch, forward, loss, scores, backward and update, with nothing told apart inside. What compiling
(`compiled_step.py`) and capturing (`captured_step.py`) have in common.

The first steps are ordinary ones: they make the optimizer's state, and show which types flow and which parameters are trained. A
graph has one shape: a batch of another (the short last one of an epoch) is an ordinary step too, on all ranks. Both are counted.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.graph_batches import GraphBatches, HostBatches
from paceline.worker.measure.compiles import COMPILE, Compiles
from paceline.worker.measure.tally import Sums, Tally
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.step import EagerStep, Place, StepInput
from paceline.worker.transform.graph import Leaf, signature
from paceline.worker.transform.in_graph import RateInTensors, trained
from paceline.worker.transform.side_effects import in_place, steady

STEP = "step"
_NOT_ALIKE = (
    "{asked}: on several ranks every whole batch must have one shape, and this rank has got one of another: it would make an ordinary "
    "step while the others run their graphs, and end with other bits; make batches alike, or use graph_of=model, or graph=eager"
)
Data = tuple[torch.Tensor, ...]


class GraphBuffers:
    """What the graph of a step works on beside the model: all of it tensors that stay where they are, changed in place."""

    def __init__(self, eager: EagerStep, names: Sequence[str], *, asked: str, moves_beta: bool) -> None:
        optimizer, self.clip = eager.update.optimizer, eager.update.clip
        self.parameters = trained(optimizer, asked=asked)
        device = self.parameters[0].device
        self.names = list(names)
        self.rate = RateInTensors(optimizer, self.parameters[0], moves_beta=moves_beta)
        self.sums = torch.zeros(len(self.names), 2, dtype=torch.float64, device=device)
        # how many steps were clipped, the longest gradient
        self.clips = torch.zeros(2, dtype=torch.float64, device=device)

    def rows(self, values: Sums) -> torch.Tensor:
        """Inside the graph. A plain number becomes a fill, not a copy from the host, which no graph may hold."""
        arithmetic = [_double(value, self.sums.device) for name in self.names for value in values[name]]
        return torch.stack(arithmetic).view(-1, 2)

    def give(self) -> Sums:
        """What was added up since the last time; on the device, without waiting for it."""
        kept = self.sums.clone()
        self.sums.zero_()
        return {name: (kept[row, 0], kept[row, 1]) for row, name in enumerate(self.names)}


def _double(value: Any, device: torch.device) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach().to(device=device, dtype=torch.float64).reshape(())
    return torch.full((), float(value), dtype=torch.float64, device=device)


class SingleGraphStep(ABC):
    """It fills the part `step` of the stopwatch and no other, in its ordinary steps as well; but for messages between ranks, which
    stay `communication`. `data`: the training data, where it lies on the device as tensors: then the step comes by its own batches.
    """

    phases: tuple[str, ...] = (STEP,)
    word: str
    asked: str
    num_first = 1  # ordinary steps before the graph is made
    num_graphs = 1
    batches_of: type[GraphBatches] | type[HostBatches] = GraphBatches

    def __init__(
        self,
        eager: EagerStep,
        task_module: TaskModule,
        compiles: Compiles,
        *,
        moves_beta: bool,
        data: Data | None = None,
    ) -> None:
        self.eager, self.task_module, self.compiles, self.data = eager, task_module, compiles, data
        self.watch, self.update, self.arithmetic = eager.watch, eager.update, eager.arithmetic
        self.num_eager = self.num_graph = 0
        self._moves_beta = moves_beta
        self._shape: tuple[int, tuple[Leaf, ...]] | None = None  # number of samples, and what they are in
        self._num_global: int | None = None
        self._tally: Tally | None = None
        self._graph_buffers: GraphBuffers | None = None
        self._batches: GraphBatches | HostBatches | None = None
        eager.phases = tuple(STEP if phase != "communication" else phase for phase in eager.phases)

    @property
    def computed(self) -> tuple[str, ...]:
        return self.arithmetic.computed

    def __call__(self, step_input: StepInput, tally: Tally) -> None:
        """One micro-batch, or none: rules refuse more."""
        place, batch = (step_input.place, None) if self.data is not None else (None, None)
        if place is None:
            micro = list(step_input)
            step_input = StepInput(iter(micro), None, step_input.num_global)
            batch, num = micro[0][:2] if micro else (None, 0)
            shape = (num, signature(batch, asked=self.asked))
        else:
            shape = (place.num, ())
        if self._shape is None:
            self._shape, self._num_global = (
                shape,
                step_input.num_global,
            )  # whole, unless the data is smaller than one batch
        # All ranks or none: the same update, compiled and not, differs in its last bits, and they would train several models.
        short = step_input.num_global != self._num_global
        if shape != self._shape and not short and self.eager.sharding.meets:
            raise RunFailed(_NOT_ALIKE.format(asked=self.asked), kind="mismatch")
        if shape != self._shape or short or self.num_eager < self.num_first or not shape[0]:
            self.watch.switch(STEP)
            self._ordinary(step_input, tally)
            return
        if self._graph_buffers is None:
            self._make(place, batch, shape[0])
        assert self._graph_buffers is not None
        if self._tally is not tally and self._tally is not None:
            self._tally.take()
        self._tally = tally
        self.update.advance()
        self._graph_buffers.rate.follow(self.update.rate)
        self.before_run()
        if place is not None and self._batches is not None:
            self.begins()
            self._batches.follow(place)
        self.run(batch)
        tally.later(self._graph_buffers.give, shape[0])
        self.num_graph += 1

    def before_run(self) -> None:  # noqa: B027 - most have nothing to tell
        """What a step's graph is told beside the rate."""

    def begins(self) -> None:
        """From one graph to the next nothing ends: on a GPU each switch would be a mark in its queue."""
        if self.watch.part != STEP:
            self.watch.switch(STEP)

    def _make(self, place: Place | None, batch: Any, num: int) -> None:
        self.watch.switch(STEP)
        with self.compiles.making(graphs=self.num_graphs):
            self._graph_buffers = GraphBuffers(self.eager, self._names, asked=self.asked, moves_beta=self._moves_beta)
            if place is not None and self.data is not None:
                self._batches = self.batches_of(self.eager.task, self.data, place)
                self._batches.follow(place)
            self.update.optimizer.zero_grad(set_to_none=True)
            self.make(self._graph_buffers, batch, num)

    @abstractmethod
    def make(self, graph_buffers: GraphBuffers, batch: Any, num: int) -> None:
        """The graph, without a step being made."""

    @abstractmethod
    def run(self, batch: Any) -> None:
        """One step; where the batch was fetched outside, the stopwatch is in the part `data` still."""

    def _ordinary(self, step_input: StepInput, tally: Tally) -> None:
        own = Tally()
        with contextlib.nullcontext() if self._graph_buffers is not None else self.checked():
            self.eager(step_input, own)
        if own.num:
            self._names = own.names
        tally.merge(own)
        self.num_eager += 1

    @contextlib.contextmanager
    def checked(self) -> Any:
        """Around the ordinary steps before there is a graph: whether they do what it would not. Python is not there when a graph
        runs: what it draws or counts would stay as it was."""
        with in_place(self.task_module, self.asked), steady(self.task_module, self.asked, host=self.draws_on_host):
            yield

    draws_on_host = True  # a graph of this kind cannot draw from torch's generator of the host

    def hidden_s(self) -> float:
        return 0.0

    def num_micro(self) -> int:
        return 1

    @property
    def is_made(self) -> bool:
        """The graph is there, and steps went through it."""
        return self.num_graph > 0

    def read_back(self) -> dict[str, Any]:
        if self._graph_buffers is not None and self.update.clip is not None:
            num, longest = self._graph_buffers.clips.tolist()
            self.update.noted(num, longest)
            self._graph_buffers.clips.zero_()
        return {
            "wrap": "none",
            "graph": self.word if self.is_made else "eager",
            "graph_of": STEP if self.is_made else None,
        }

    def num_made(self) -> int | None:
        return self.compiles.num

    def finish(self) -> dict[str, Any] | None:
        return {
            "of": STEP,
            **self.compiles.counts(),
            "compile_s": self.watch.spent(COMPILE),
            "eager_steps": self.num_eager,
        }

    @abstractmethod
    def close(self) -> None:
        """On every way out."""
