"""A step as one graph: batch, forward, loss, scores, backward and update, without separate phases.

This is what compiling (`compiled.py`) and capturing (`captured.py`) have in common. The first steps are ordinary ones:
they create the optimizer's state, and show which types flow and which parameters are trained. A graph has one shape: a
batch of another shape (the short last one of an epoch) is an ordinary step too, on all ranks. Both kinds are counted.
Which steps are ordinary ones is a part of the run's state, because they differ from the graph's in their last bits.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.spec.axes.graphs import GRAPHS
from paceline.worker.measure.compiles import COMPILE, Compiles
from paceline.worker.measure.tally import Sums, Tally
from paceline.worker.optim.graph_update import GraphUpdate
from paceline.worker.optim.own import refuse_hooks
from paceline.worker.step.batches import GraphBatches, HostBatches
from paceline.worker.step.eager import EagerStep
from paceline.worker.step.executor import StepParts
from paceline.worker.step.input import SamplePosition, StepInput
from paceline.worker.tasks.tree import mapped
from paceline.worker.transform.graph import Leaf, signature
from paceline.worker.transform.side_effects import in_place, steady

STEP = "step"
_NOT_ALIKE = (
    "{asked}: on several ranks every whole batch must have one shape, and this rank has got one of another: it would make an ordinary "
    "step while the others run their graphs, and end with other bits; make batches alike, or use graph_of=model, or graph=eager"
)


class GraphBuffers:
    """Loss and scores are added up inside the graph, in a tensor that is never moved."""

    def __init__(self, names: Sequence[str], device: torch.device) -> None:
        self.names = list(names)
        self.sums = torch.zeros(len(self.names), 2, dtype=torch.float64, device=device)

    def rows(self, values: Sums) -> torch.Tensor:
        """Called inside the graph. A plain number becomes a fill: a copy from the host could not be in a graph."""
        numbers = [_double(value, self.sums.device) for name in self.names for value in values[name]]
        return torch.stack(numbers).view(-1, 2)

    def give(self) -> Sums:
        """The sums since the last call; they stay on the device, and nobody waits for them."""
        kept = self.sums.clone()
        self.sums.zero_()
        return {name: (kept[row, 0], kept[row, 1]) for row, name in enumerate(self.names)}


def _double(value: Any, device: torch.device) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach().to(device=device, dtype=torch.float64).reshape(())
    return torch.full((), float(value), dtype=torch.float64, device=device)


class SingleGraphStep(ABC):
    """All time of a step, of ordinary ones as well, goes to the part `step` of the stopwatch. Only messages between
    ranks stay `communication`. Where the training data lies on the device as tensors, it fetches its own batches."""

    phases: tuple[str, ...] = (STEP,)
    word: str
    asked: str
    num_graphs = 1
    batches_of: type[GraphBatches] | type[HostBatches] = GraphBatches
    draws_on_host = True  # a graph of this kind cannot draw from torch's generator of the host

    def __init__(self, parts: StepParts, compiles: Compiles) -> None:
        self.parts, self.eager, self.compiles = parts, EagerStep(parts), compiles
        self.watch, self.task_module = parts.watch, parts.task_module
        self.num_first = GRAPHS[self.word].ordinary_steps
        self.num_eager = self.num_graph = 0
        self._num_ordinary = 0  # since the run began, in whichever process
        self._shape: tuple[int, tuple[Leaf, ...]] | None = None  # number of samples, and what they are in
        self._num_global: int | None = None
        self._tally: Tally | None = None
        self._names: list[str] = []
        self._graph_buffers: GraphBuffers | None = None
        self._update: GraphUpdate | None = None
        self._batches: GraphBatches | HostBatches | None = None
        self.eager.phases = tuple(STEP if phase != "communication" else phase for phase in self.eager.phases)
        parts.state.others["graph"] = self
        parts.state.on_put_back.append(self._forget)

    @property
    def computed(self) -> tuple[str, ...]:
        return self.eager.computed

    def __call__(self, step_input: StepInput, tally: Tally) -> None:
        """One micro-batch, or none: rules refuse more."""
        position, batch = (step_input.position, None) if self.parts.data is not None else (None, None)
        if position is None:
            micro = list(step_input)
            step_input = StepInput(iter(micro), None, step_input.num_global)
            batch, num = micro[0][:2] if micro else (None, 0)
            shape = (num, signature(batch, asked=self.asked))
        else:
            shape = (position.num, ())
        if not self._fits(shape, step_input.num_global):
            self.watch.switch(STEP)
            self._ordinary(step_input, tally)
            return
        if self._graph_buffers is None:
            self._rehearse(step_input)
            self._make(position, batch, shape[0])
        assert self._graph_buffers is not None and self._update is not None
        if self._tally is not tally and self._tally is not None:
            self._tally.take()
        self._tally = tally
        self.parts.update.advance()
        self._update.advance()
        if position is not None and self._batches is not None:
            self.begins()
            self._batches.follow(position)
        self.run(batch)
        tally.later(self._graph_buffers.give, shape[0])
        self.num_graph += 1

    def _fits(self, shape: tuple[int, tuple[Leaf, ...]], num_global: int | None) -> bool:
        """Whether the graph can make this step. All ranks decide alike: the compiled and the ordinary update differ in
        their last bits, so ranks would otherwise train different models."""
        if self._num_global is None:
            self._num_global = num_global  # of a full batch, unless the data is smaller than one
        if num_global != self._num_global:
            return False
        if self._shape is None:
            self._shape = shape
        if shape != self._shape and self.parts.sharding.reduces_over_ranks:
            raise RunFailed(_NOT_ALIKE.format(asked=self.asked), kind="mismatch")
        return shape == self._shape and self._num_ordinary >= self.num_first and bool(shape[0])

    def begins(self) -> None:
        """Between two steps of the graph the stopwatch is not switched: on a GPU each switch would be an event in its
        queue."""
        if self.watch.part != STEP:
            self.watch.switch(STEP)

    def _rehearse(self, step_input: StepInput) -> None:
        """A run that was resumed has made its ordinary steps in another process. They are made here, and taken back: libraries
        are loaded and the first types seen, as they were there."""
        if self.num_eager >= self.num_first:
            return
        before = self.parts.state.copy_out()
        micro = list(step_input)
        for _ in range(self.num_first - self.num_eager):
            copies = [(mapped(torch.clone, batch, opens=False), num, last) for batch, num, last in micro]
            self._ordinary(StepInput(iter(copies), step_input.position, step_input.num_global), Tally())
            self.num_eager -= 1
            self.parts.state.put_back(before)

    def _make(self, position: SamplePosition | None, batch: Any, num: int) -> None:
        self.watch.switch(STEP)
        optimizer = self.parts.state.optimizer
        with self.compiles.making(graphs=self.num_graphs):
            refuse_hooks(optimizer, self.asked)
            self._update = GraphUpdate(optimizer, self.parts.update.rates, asked=self.asked)
            self._graph_buffers = GraphBuffers(self._names, self._update.parameters[0].device)
            if position is not None and self.parts.data is not None:
                self._batches = self.batches_of(self.parts.description.task, self.parts.data, position)
                self._batches.follow(position)
            optimizer.zero_grad(set_to_none=True)
            self.make(self._update, self._graph_buffers, batch, num)

    @abstractmethod
    def make(self, update: GraphUpdate, graph_buffers: GraphBuffers, batch: Any, num: int) -> None:
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
        self._num_ordinary += 1
        if self._update is not None:
            self._update.forget()

    def state(self) -> dict[str, Any]:
        return {"ordinary_steps": self._num_ordinary, "num_global": self._num_global}

    def restore(self, values: dict[str, Any]) -> None:
        self._num_ordinary, self._num_global = values["ordinary_steps"], values["num_global"]

    def _forget(self) -> None:
        """A state was put back: batches that were fetched ahead and values that were read ahead are no longer valid."""
        if self._update is not None:
            self._update.forget()
        if self._batches is not None:
            self._batches.forget()
        if self._graph_buffers is not None:
            self._graph_buffers.sums.zero_()

    @contextlib.contextmanager
    def checked(self) -> Any:
        """Around the ordinary steps before there is a graph: whether they do something a graph would not. No Python
        runs in a graph, so what Python draws or counts would never change again."""
        with in_place(self.task_module, self.asked), steady(self.task_module, self.asked, host=self.draws_on_host):
            yield

    def hidden_s(self) -> float:
        return 0.0

    def num_micro(self) -> int:
        return 1

    @property
    def is_made(self) -> bool:
        """The graph is there, and steps went through it."""
        return self.num_graph > 0

    def read_back(self) -> dict[str, Any]:
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
