"""Executors that need a compiler or a GPU, in a form that unit tests can pay for: the same graphs, run operator by operator."""

from __future__ import annotations

import getpass
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo

from made_step import WORLD
from paceline.worker.assemble import Parts
from paceline.worker.measure.compiles import Compiles
from paceline.worker.measure.tally import Tally
from paceline.worker.step.captured import CapturedStep
from paceline.worker.step.compiled import CompiledStep
from paceline.worker.step.eager import EagerStep
from paceline.worker.step.executor import StepParts
from paceline.worker.step.input import StepInput
from paceline.worker.step.model_graph import ModelGraphStep
from paceline.worker.step.profiled import ProfiledStep
from paceline.worker.transform.graph import Compiler


@pytest.fixture(autouse=True)
def compiler() -> Iterator[None]:
    import torch._inductor.config as inductor

    with pytest.MonkeyPatch.context() as patch, inductor.patch(compile_threads=1):
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"))
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()
        patch.delenv("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", raising=False)


class Warm(Compiler):
    """Runs the same graphs operator by operator: quick, and as exact."""

    def __init__(self) -> None:
        super().__init__(WORLD.device, threads=1, kept=True, backend="aot_eager")
        self._ready = True


class OnHost(CapturedStep):
    """What a recording is, played by hand: the same work on the same tensors, whatever they hold by then."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.recorder: Any = SimpleNamespace(aside=lambda work: work(), record=self._recorded)

    def _recorded(self, body: Any) -> Any:
        def replay() -> None:
            for parameter in self.task_module.parameters():
                parameter.grad = None
            body()

        return SimpleNamespace(replay=replay)


class DrawingOnHost(OnHost):
    """Draws from torch's generator of the host, as a recording draws from the GPU's."""

    draws_on_host = False


class OfTheModel(ModelGraphStep):
    """The model as a compiled graph."""

    def __init__(self, parts: StepParts, compiles: Compiles) -> None:
        super().__init__(parts, compiles, Warm())


class UnderAProfiler(EagerStep):
    """The profiled step, where the loop would call another: it tallies nothing."""

    def __init__(self, parts: StepParts, compiles: Compiles) -> None:
        super().__init__(parts)

    def __call__(self, step_input: StepInput, tally: Tally) -> None:
        step = ProfiledStep(self.parts, training=True)
        for batch, num, _ in step_input:
            step(batch, num, self.watch)


def quick_step(kind: Any) -> Any:
    """In place of the step that assemble has built: a cold compiler takes seconds, a recording a GPU."""

    def prepare(parts: Parts) -> Parts:
        given = parts.step_parts
        compiles = Compiles(given.watch)
        return replace(parts, step=kind(given, compiles, *([Warm()] if kind is CompiledStep else [])))

    return prepare
