"""A whole step traced as one graph and compiled: batch, forward, loss, backward and update in one call, without a word of Python
between them. On a GPU the compiled step is recorded too, so that its kernels are started with one call.

With several ranks it is two graphs with one message between them, laid out as `Replicated` lays out its own: the first ends with this
rank's gradients and count in the message, the second begins with everybody's. So a rank whose batch is short may make an
ordinary step while the others make theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.func import functional_call
from torch.utils import _pytree

from paceline.base.errors import PacelineError, RunFailed
from paceline.worker.measure.compiles import Compiles
from paceline.worker.measure.tally import LOSS
from paceline.worker.recording import Recorder
from paceline.worker.sharding.replicate import Replicated
from paceline.worker.sharding.whole import Whole
from paceline.worker.sharding.wire import Wire
from paceline.worker.step import EagerStep
from paceline.worker.tasks.task import sentence
from paceline.worker.transform.beside import steady
from paceline.worker.transform.formulas import Corrections, corrections, formula, kept
from paceline.worker.transform.graph import USUALLY, Compiler, code_line
from paceline.worker.transform.in_graph import total_norm
from paceline.worker.transform.tracing import compile_traced, trace
from paceline.worker.update import TINY
from paceline.worker.whole_step import STEP, Data, Insides, WholeStep

State = dict[str, Any]


class CompiledStep(WholeStep):
    """As one graph or not at all: a break inside a step would make two graphs of it without a word."""

    word, asked = "compile", "graph=compile graph_of=step"
    num_before_recording = 2  # compiled steps on the stream that is then recorded: kernels are loaded by then

    def __init__(
        self, eager: EagerStep, whole: Whole, compiles: Compiles, compiler: Compiler, *, moves_beta: bool, data: Data | None = None
    ) -> None:  # fmt: skip
        super().__init__(eager, whole, compiles, moves_beta=moves_beta, data=data)
        self._compiler = compiler
        device = next(whole.parameters()).device
        self._recorder = Recorder(device) if device.type == "cuda" else None
        self._recording: torch.cuda.CUDAGraph | None = None
        self.draws_on_host = device.type == "cuda"
        # alone, the gradients go straight into the update
        self._wire = Wire(eager.sharding) if eager.sharding.meets and isinstance(eager.sharding, Replicated) else None
        self.num_graphs = 1 if self._wire is None else 2
        self._calls: list[Callable[[], Any]] = []
        self._batch: list[torch.Tensor] = []
        self._message: torch.Tensor | None = None
        self._corrections: Corrections | None = None
        self._looked = -1  # ordinary steps when they were last looked at

    # ---- making it ----

    def make(self, insides: Insides, batch: Any, num: int) -> None:
        self._compiler.get_ready()
        body = _Body(self.eager, self.whole, insides, self._wire, num=num)
        self._corrections = body.corrections
        state = body.state(self._given(batch))
        given = (lambda tensors: tensors["given"]) if self._course is None else self._course.batch
        if self._course is not None:
            state["given"] = self._course.tensors
        try:
            with steady(self.whole, self.asked, host=False):
                if self._wire is None:
                    self._calls = [self._call(lambda s: body.update(s, body.gradients(s, given(_course(s)))), state)]
                else:
                    self._message = state["message"]
                    self._calls = [
                        self._call(lambda s: body.send(s, given(_course(s))), state),
                        self._call(lambda s: body.update(s, body.received(s)), body.after(state)),
                    ]
        except PacelineError:
            raise
        except Exception as error:
            raise RunFailed(_refusal(error, self.asked), kind="mismatch") from error

    def _given(self, batch: Any) -> Any:
        """A batch that is handed over: to the graph's own tensors, where they stay."""
        if self._course is not None:
            return None
        own = _pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, batch)
        self._batch = [leaf for leaf in _pytree.tree_leaves(own) if isinstance(leaf, torch.Tensor)]
        return own

    def _call(self, body: Callable[[State], None], state: State) -> Callable[[], Any]:
        traced = trace(body, state)
        call, inputs = compile_traced(traced, backend=self._compiler.backend), traced.inputs
        return lambda: call(*inputs)

    # ---- running it ----

    def before_run(self) -> None:
        if self._corrections is None:
            return
        if self._looked != self.num_eager:
            self._corrections.look()
            self._looked = self.num_eager
        self._corrections.advance()

    def run(self, batch: Any) -> None:
        for own, tensor in zip(self._batch, _tensors(batch), strict=True):
            own.copy_(tensor)
        self.begins()
        if self._recorder is not None:
            self._on_gpu(self._recorder)
            return
        with torch.no_grad():
            self._calls[0]()
            if self._wire is not None and self._message is not None:
                self.watch.switch("communication")
                self._wire.sum(self._message)
                self.watch.switch(STEP)
                self._calls[1]()

    def _on_gpu(self, recorder: Recorder) -> None:
        if self._recording is not None:
            self._recording.replay()
        elif self.num_graph < self.num_before_recording:
            recorder.aside(self._once)
        else:
            with self.compiles.making():
                self._recording = recorder.record(self._once)
            self._recording.replay()

    def _once(self) -> None:
        with torch.no_grad():
            self._calls[0]()

    @property
    def is_made(self) -> bool:
        return super().is_made and bool(self._calls)

    def finish(self) -> dict[str, Any] | None:
        row = super().finish()
        assert row is not None
        return {**row, "cache": self._compiler.found(), "captured": self._recording is not None}

    def close(self) -> None:
        self._compiler.close()


def _course(state: State) -> Any:
    """What the step is given: the course's own tensors, or a batch under its name."""
    return state["given"] if "at" in state["given"] else state


def _tensors(batch: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]


class _Body:
    """The functions that are traced. They are given all they work on (`state`), and see its tensors without numbers."""

    def __init__(self, eager: EagerStep, whole: Whole, insides: Insides, wire: Wire | None, *, num: int) -> None:
        self._task, self._numbers, self._whole = eager.task, eager.numbers, whole
        self._insides, self._wire, self._num, self._unit = insides, wire, num, eager.unit
        self._formula = formula(eager.update.optimizer)
        self._kept = kept(eager.update.optimizer, insides.parameters)
        self.corrections = corrections(eager.update.optimizer, insides.parameters)
        own = {id(parameter): name for name, parameter in whole.named_parameters()}
        self._weights = {own[id(parameter)]: parameter for parameter in insides.parameters}

    def state(self, batch: Any) -> State:
        insides = self._insides
        rate = {"lr": insides.rate.lr, **({} if insides.rate.beta is None else {"beta": insides.rate.beta})}
        if self.corrections is not None:
            rate |= self.corrections.tensors
        return {
            "weights": {name: weight.detach() for name, weight in self._weights.items()},
            "buffers": dict(self._whole.named_buffers()),
            "kept": self._kept,
            "rate": rate,
            "sums": insides.sums,
            "clips": insides.clips,
            **({} if self._wire is None else {"message": self._wire.empty()}),
            **({} if batch is None else {"given": batch}),
        }

    @staticmethod
    def after(state: State) -> State:
        """What the second graph of two works on."""
        return {name: state[name] for name in ("weights", "kept", "rate", "clips", "message")}

    def gradients(self, state: State, batch: Any) -> list[torch.Tensor]:
        """Of the mean, on one rank alone."""
        gradients, _ = self._backward(state, batch, alone=True)
        return gradients

    def send(self, state: State, batch: Any) -> None:
        assert self._wire is not None
        gradients, count = self._backward(state, batch, alone=False)
        self._wire.write(dict(zip(map(id, self._insides.parameters), gradients, strict=True)), count, state["message"])

    def received(self, state: State) -> list[torch.Tensor]:
        assert self._wire is not None
        return self._wire.read(state["message"], self._insides.parameters)

    def _backward(self, state: State, batch: Any, *, alone: bool) -> tuple[list[Any], torch.Tensor]:
        """What another rank alone used has no gradient here."""
        task, numbers = self._task, self._numbers
        with torch.enable_grad():
            leaves = {name: weight.detach().requires_grad_() for name, weight in state["weights"].items()}
            with numbers.arithmetic():
                outputs = functional_call(self._whole, {**leaves, **state["buffers"]}, (batch,))
            outputs = numbers.whole(outputs)
            loss, count = task.loss_sum(outputs, batch, self._num)
            mean = loss / (count if alone else self._unit)
            gradients = torch.autograd.grad(mean, list(leaves.values()), allow_unused=not alone)
        scores = task.score_sums(outputs, batch, self._num)
        state["sums"].add_(self._insides.rows({LOSS: (loss, count), **scores}))
        return list(gradients), torch.as_tensor(count) / self._unit

    def update(self, state: State, gradients: list[torch.Tensor]) -> None:
        """The same arithmetic as `Update`, where nothing may be looked at."""
        clip = self._insides.clip
        if clip is not None:
            norm = total_norm(gradients)
            long, clips = norm.double(), state["clips"]
            clips.copy_(torch.stack([clips[0] + (long > clip), torch.maximum(clips[1], long)]))
            factor = (clip / (norm + TINY)).clamp(max=1.0)
            gradients = [gradient * factor for gradient in gradients]
        self._formula(list(state["weights"].values()), gradients, state["kept"], state["rate"])


def _refusal(error: BaseException, asked: str) -> str:
    if "No working C++ compiler" in str(error) or "InvalidCxxCompiler" in str(error):
        return f"{asked}: torch needs a C++ compiler here, and there is none (g++ or clang++): install one, or use graph=eager"
    return (
        f"{asked}: the step cannot be made one graph: {sentence(error)[:300]}{code_line(error)}: {USUALLY}; use graph_of=model, or "
        "graph=eager"
    )
