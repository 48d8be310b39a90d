"""The eager step with its model as a graph: compiled by torch.compile, or exported. Loss, backward pass and update are as ever, and so
are the phases; evaluation uses the plain model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from paceline.base.errors import RunFailed
from paceline.worker.measure.compiles import COMPILE, Compiles
from paceline.worker.measure.tally import Tally
from paceline.worker.step.eager import EagerStep
from paceline.worker.step.executor import StepParts
from paceline.worker.step.input import StepInput
from paceline.worker.transform.graph import Compiler, Exported, compiled, in_words, is_compiled

MODEL = "model"


class ModelGraphStep:
    """The module that the eager step calls becomes a graph. Under DDP it is the module inside of it: compiled from
    outside, DDP's own code would break the graph before the model begins. The types that flow are read from a plain
    forward before the graph is made: hooks would become a part of it."""

    def __init__(self, parts: StepParts, compiles: Compiles, compiler: Compiler | None) -> None:
        """Without a compiler it is exported."""
        self._eager, self._module, self._plain, self._compiler = (
            EagerStep(parts), parts.sharding.module, parts.task_module, compiler,
        )  # fmt: skip
        self._source = parts.description.task.source
        exported = Exported(self._module, lambda: compiles.making(graphs=1), self._source)
        self._exported = exported if compiler is None else None
        self._compiled: torch.nn.Module | None = None
        self.compiles = compiles
        self.phases = self._eager.phases
        self._eager.forward = self._first

    def _first(self, batch: Any) -> Any:
        self._eager.parts.description.arithmetic.look_at(self._plain, batch)
        if self._exported is not None:
            self._eager.forward = self._exported
        elif self._compiler is not None:
            with self.compiles.making():
                self._compiler.get_ready()
                self._compiled = compiled(self._plain, self._compiler.backend)
            self._eager.forward = self._inside(self._compiled)
        return self._eager.forward(batch)

    def _inside(self, graph: torch.nn.Module) -> torch.nn.Module:
        if isinstance(self._module, DistributedDataParallel):
            self._module.module = graph
            return self._module
        return graph

    def __call__(self, step_input: StepInput, tally: Tally) -> None:
        with self.compiles, in_words(f"graph={self._word}", "use graph=eager", self._source):
            self._eager(step_input, tally)
        if self._compiled is not None and not self.compiles.graphs:
            raise RunFailed(self._nothing(), kind="mismatch")

    def _nothing(self) -> str:
        """Said after the first step: nobody should wait for the last to hear it."""
        reasons = self.compiles.counts()["break_reasons"]
        why = reasons[0] if reasons else "it gives no reason"
        return f"graph=compile: torch made no graph of any part of the model: {why}; use graph=eager"

    def close(self) -> None:
        if self._compiler is not None:
            self._compiler.close()

    @property
    def computed(self) -> tuple[str, ...]:
        return self._eager.computed

    def hidden_s(self) -> float:
        return self._eager.hidden_s()

    def num_micro(self) -> int:
        return self._eager.num_micro()

    @property
    def _word(self) -> str:
        return "compile" if self._exported is None else "export"

    @property
    def _is_made(self) -> bool:
        if self._exported is not None:
            return isinstance(self._exported.program, torch.export.ExportedProgram) and self._exported.num_graph > 0
        return is_compiled(self._compiled) and self.compiles.graphs > 0

    def read_back(self) -> dict[str, Any]:
        made = {"graph": self._word, "graph_of": MODEL} if self._is_made else {"graph": "eager", "graph_of": None}
        return {**self._eager.read_back(), **made}

    def num_made(self) -> int | None:
        return self.compiles.num

    def finish(self) -> dict[str, Any] | None:
        eager = 0 if self._exported is None else self._exported.num_eager
        return {
            "of": MODEL,
            **self.compiles.counts(),
            "compile_s": self._eager.watch.spent(COMPILE),
            "eager_steps": eager,
            **({} if self._compiler is None else {"cache": self._compiler.cache_state()}),
        }
