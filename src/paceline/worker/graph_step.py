"""The eager step with its model as a graph: compiled by torch.compile, or exported. Loss, backward pass and update are as ever, and so
are the phases; evaluation uses the plain model.
"""

from __future__ import annotations

from typing import Any

import torch

from paceline.worker.measure.compiles import COMPILE, Compiles
from paceline.worker.measure.tally import Tally
from paceline.worker.sharding.whole import Whole
from paceline.worker.step import EagerStep, Fed
from paceline.worker.transform.graph import ColdCompiler, Exported, in_words, is_compiled

MODEL = "model"


class ModelGraphStep:
    """`graph` is torch's compiled module, or the exported one. Before it is first called, the plain model shows which types flow:
    hooks would become a part of the graph."""

    def __init__(
        self, graph: torch.nn.Module | Exported, eager: EagerStep, plain: Whole, compiles: Compiles, compiler: ColdCompiler
    ) -> None:
        self._graph, self._eager, self._plain, self._compiler = graph, eager, plain, compiler
        self.compiles = compiles
        self.phases = eager.phases
        eager.forward = self._first

    def _first(self, batch: Any) -> Any:
        self._eager.numbers.look_at(self._plain, batch)
        if is_compiled(self._graph):
            with self.compiles.making():
                self._compiler.get_ready()
        self._eager.forward = self._graph
        return self._graph(batch)

    def __call__(self, batches: Fed, tally: Tally) -> None:
        try:
            with self.compiles, in_words(f"graph={self._word}", "use graph=eager"):
                self._eager(batches, tally)
        except BaseException:
            self._compiler.close()
            raise

    @property
    def computed(self) -> tuple[str, ...]:
        return self._eager.computed

    def hidden_s(self) -> float:
        return self._eager.hidden_s()

    def num_micro(self) -> int:
        return self._eager.num_micro()

    @property
    def _word(self) -> str:
        return "export" if isinstance(self._graph, Exported) else "compile"

    @property
    def _is_made(self) -> bool:
        if isinstance(self._graph, Exported):
            return isinstance(self._graph.program, torch.export.ExportedProgram)
        return is_compiled(self._eager.forward) and self.compiles.graphs > 0

    def read_back(self) -> dict[str, Any]:
        made = {"graph": self._word, "graph_of": MODEL} if self._is_made else {"graph": "eager", "graph_of": None}
        return {**self._eager.read_back(), **made}

    def num_made(self) -> int | None:
        return self.compiles.num

    def finish(self) -> dict[str, Any] | None:
        self._compiler.close()
        eager = self._graph.num_eager if isinstance(self._graph, Exported) else 0
        return {"of": MODEL, **self.compiles.counts(), "compile_s": self._eager.watch.spent(COMPILE), "eager_steps": eager}
