"""A whole step as one graph: forward, loss, scores, backward and update, with nothing told apart inside. Compiled here; the base is
shared with `captured_step.py`.

The first steps are ordinary ones: they make the optimizer's state, and show which types flow and which parameters are trained. A
graph has one shape: a batch of another (the short last one of an epoch) is an ordinary step too. Both are counted.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.func import functional_call, grad_and_value

from paceline.worker.measure.compiles import COMPILE, Compiles
from paceline.worker.measure.tally import LOSS, Sums, Tally
from paceline.worker.sharding.whole import Whole
from paceline.worker.step import EagerStep, Fed
from paceline.worker.transform.beside import in_place
from paceline.worker.transform.graph import ColdCompiler, Leaf, in_words, signature
from paceline.worker.transform.in_graph import RateInTensors, total_norm, trained, updater
from paceline.worker.update import TINY

STEP = "step"


class Insides:
    """What the graph of a step works on beside the model: all of it tensors that stay where they are, changed in place."""

    def __init__(self, eager: EagerStep, names: Sequence[str], *, asked: str, moves_beta: bool) -> None:
        optimizer, self.clip = eager.update.optimizer, eager.update.clip
        self.parameters = trained(optimizer, asked=asked)
        device = self.parameters[0].device
        self.names = list(names)
        self.rate = RateInTensors(optimizer, self.parameters[0], moves_beta=moves_beta)
        self._update = updater(optimizer, self.parameters, self.rate)
        self.sums = torch.zeros(len(self.names), 2, dtype=torch.float64, device=device)
        self.clips = torch.zeros(
            2, dtype=torch.float64, device=device
        )  # how many steps were clipped, the longest gradient

    def rows(self, values: Sums) -> torch.Tensor:
        """Inside the graph. A plain number becomes a fill, not a copy from the host, which no graph may hold."""
        return torch.stack([_double(value, self.sums.device) for name in self.names for value in values[name]]).view(
            -1, 2
        )

    def apply(self, gradients: list[torch.Tensor]) -> None:
        """Inside the graph: the same arithmetic as `Update`, where nothing may be looked at."""
        if self.clip is not None:
            norm = total_norm(gradients)
            factor = (self.clip / (norm + TINY)).clamp(max=1.0)
            gradients = [gradient * factor for gradient in gradients]
            long = norm.double()
            self.clips.copy_(torch.stack([self.clips[0] + (long > self.clip), torch.maximum(self.clips[1], long)]))
        self._update(gradients)

    def give(self) -> Sums:
        """What was added up since the last time; on the device, without waiting for it."""
        kept = self.sums.clone()
        self.sums.zero_()
        return {name: (kept[row, 0], kept[row, 1]) for row, name in enumerate(self.names)}


def _double(value: Any, device: torch.device) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach().to(device=device, dtype=torch.float64).reshape(())
    return torch.full((), float(value), dtype=torch.float64, device=device)


class WholeStep(ABC):
    """It fills the part `step` of the stopwatch and no other, in its ordinary steps as well."""

    phases: tuple[str, ...] = (STEP,)
    word: str
    asked: str
    num_first = 1  # ordinary steps before the graph is made
    by_hand = 0  # graphs that torch's compiler does not count

    def __init__(self, eager: EagerStep, whole: Whole, compiles: Compiles, *, moves_beta: bool) -> None:
        self.eager, self.whole, self.compiles = eager, whole, compiles
        self.watch, self.update, self.numbers = eager.watch, eager.update, eager.numbers
        self.num_eager = self.num_graph = 0
        self._moves_beta = moves_beta
        self._shape: tuple[int, tuple[Leaf, ...]] | None = None  # number of samples, and what they are in
        self._tally: Tally | None = None
        self._insides: Insides | None = None
        eager.phases = (STEP,) * len(eager.phases)

    @property
    def computed(self) -> tuple[str, ...]:
        return self.numbers.computed

    def __call__(self, batches: Fed, tally: Tally) -> None:
        """One micro-batch: rules refuse more, and more ranks; alone, a rank always has a sample."""
        ((batch, num, _),) = batches
        shape = (num, signature(batch, asked=self.asked))
        if self._shape is None:
            self._shape = shape  # the first batch is whole, unless the data is smaller than one
        if shape != self._shape or self.num_eager < self.num_first:
            self.watch.switch(STEP)
            self._ordinary(batch, num, tally)
            return
        if self._insides is None:
            self.watch.switch(STEP)
            with self.compiles.making(graphs=self.by_hand):
                self._insides = Insides(self.eager, self._names, asked=self.asked, moves_beta=self._moves_beta)
                self.update.optimizer.zero_grad(set_to_none=True)
                self.make(self._insides, batch, num)
        if self._tally is not tally and self._tally is not None:
            self._tally.take()
        self._tally = tally
        self.update.advance()
        self._insides.rate.follow(self.update.rate)
        self.run(batch)
        tally.later(self._insides.give, num)
        self.num_graph += 1

    @abstractmethod
    def make(self, insides: Insides, batch: Any, num: int) -> None:
        """The graph, without a step being made."""

    @abstractmethod
    def run(self, batch: Any) -> None:
        """One step; the stopwatch is in the part `data` still."""

    def _ordinary(self, batch: Any, num: int, tally: Tally) -> None:
        own = Tally()
        with contextlib.nullcontext() if self._insides is not None else self.checked():
            self.eager(iter(((batch, num, True),)), own)
        self._names = own.names
        tally.merge(own)
        self.num_eager += 1

    def checked(self) -> contextlib.AbstractContextManager[None]:
        """Around the ordinary steps before there is a graph: whether they do what it would not."""
        return in_place(self.whole, self.asked)

    def hidden_s(self) -> float:
        return 0.0

    def num_micro(self) -> int:
        return 1

    @property
    def is_made(self) -> bool:
        """The graph is there, and steps went through it."""
        return self.num_graph > 0

    def read_back(self) -> dict[str, Any]:
        if self._insides is not None and self.update.clip is not None:
            num, longest = self._insides.clips.tolist()
            self.update.noted(num, longest)
            self._insides.clips.zero_()
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


class CompiledStep(WholeStep):
    """By torch.compile, as one graph or not at all: a break inside a step would make two graphs of it without a word."""

    word, asked = "compile", "graph=compile graph_of=step"

    def __init__(
        self, eager: EagerStep, whole: Whole, compiles: Compiles, compiler: ColdCompiler, *, moves_beta: bool
    ) -> None:
        super().__init__(eager, whole, compiles, moves_beta=moves_beta)
        self._compiler = compiler
        self._step: Callable[[Any], None] | None = None

    def __call__(self, batches: Fed, tally: Tally) -> None:
        with self.compiles, in_words(self.asked, "use graph_of=model, or graph=eager"):
            super().__call__(batches, tally)

    def make(self, insides: Insides, batch: Any, num: int) -> None:
        self._compiler.get_ready()
        step = _functional(self.eager, self.whole, insides, num)
        self._step = torch.compile(step, fullgraph=True, dynamic=False, backend=self._compiler.backend)

    def run(self, batch: Any) -> None:
        assert self._step is not None
        self.watch.switch(STEP)
        with torch.no_grad():
            self._step(batch)

    @property
    def is_made(self) -> bool:
        return super().is_made and self.compiles.graphs > 0

    def close(self) -> None:
        self._compiler.close()


def _functional(eager: EagerStep, whole: Whole, insides: Insides, num: int) -> Callable[[Any], None]:
    """The step as a function of its batch: torch's compiler follows torch.func through a backward pass, and not loss.backward().

    Running statistics go through it as values and are written at the end; parameters that got no gradient are left out, as
    the optimizer leaves them.
    """
    task, numbers = eager.task, eager.numbers
    own = {id(parameter): name for name, parameter in whole.named_parameters()}
    weights = {own[id(parameter)]: parameter for parameter in insides.parameters}
    buffers = dict(whole.named_buffers())

    def loss_of(weights: Mapping[str, Any], batch: Any) -> tuple[Any, tuple[Any, dict[str, Any]]]:
        after = {name: buffer.clone() for name, buffer in buffers.items()}
        with numbers.arithmetic():
            outputs = functional_call(whole, {**weights, **after}, (batch,))
        outputs = numbers.whole(outputs)
        loss, count = task.loss_sum(outputs, batch, num)
        rows = insides.rows({LOSS: (loss, count), **task.score_sums(outputs, batch, num)})
        return loss / count, (rows, after)

    def step(batch: Any) -> None:
        gradients, (_, (rows, after)) = grad_and_value(loss_of, has_aux=True)(weights, batch)
        for name, buffer in buffers.items():
            buffer.copy_(after[name])
        insides.sums.add_(rows)
        insides.apply([gradients[name] for name in weights])

    return step
