"""What each graph mode makes a graph of, and what it needs for that. Data only: the worker makes the graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTraits:
    """`graph=auto` is no mode: a trial replaces it by one of these before a spec is written."""

    name: str
    is_graph: bool = True  # False: operator by operator
    of_model: bool = False
    of_step: bool = False
    ordinary_steps: int = 0  # of a step's graph: steps before it is made
    needs_compiler: bool = False  # torch's inductor, which takes long to import and longer to compile
    needs_cuda: bool = False
    is_exported: bool = False  # by torch.export: the forward pass as one graph, for two samples or more
    own_formulas: bool = False  # a step's update is computed by formulas of ours, whatever `update` says
    takes_fp8: bool = False

    @property
    def usual_of(self) -> str:
        """graph_of=auto."""
        return "model" if self.of_model or not self.of_step else "step"


GRAPHS: Mapping[str, GraphTraits] = MappingProxyType(
    {
        row.name: row
        for row in (
            GraphTraits(name="eager", is_graph=False, takes_fp8=True),
            GraphTraits(
                name="compile",
                of_model=True,
                of_step=True,
                ordinary_steps=1,
                needs_compiler=True,
                own_formulas=True,
                takes_fp8=True,
            ),
            GraphTraits(name="export", of_model=True, is_exported=True),
            GraphTraits(name="captured", of_step=True, ordinary_steps=3, needs_cuda=True),
        )
    }
)
