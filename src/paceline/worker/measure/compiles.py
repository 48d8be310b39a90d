"""The cost of compiling graphs, apart from running them: its seconds go to the stopwatch's part `compile`, its graphs are counted.

torch calls us when a compilation begins and when it ends. That may be in the middle of a forward pass, and for a backward pass on
autograd's own thread, while the thread that owns the stopwatch waits for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

from torch._dynamo.callback import CallbackTrigger, callback_handler
from torch._dynamo.utils import counters, get_compilation_metrics, graph_break_reasons

from paceline.worker.measure.clock import Stopwatch

COMPILE = "compile"
_MOST_REASONS, _MOST_LETTERS = 3, 200


def brief(reason: str) -> str:
    """The first line of what torch says, without the code it quotes.

    >>> brief("tensor 'x' size mismatch\\nUser stack trace:\\n ..."), brief("generic_jump TensorVariable()")
    ("tensor 'x' size mismatch", 'Data-dependent branching')
    """
    if reason.startswith("generic_jump"):  # torch's name for a branch in the outermost function
        return "Data-dependent branching"
    return " ".join(reason.strip().partition("\n")[0].partition(" # ")[0].split())[:_MOST_LETTERS] or "no reason given"


class Compiles:
    """`with compiles: step()` registers its callbacks for one step; `counts` returns what was counted so far.

    `making` is for graphs that are made without torch's compiler: an export, a capture.
    """

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._part, self._on_switch, self._depth = watch.part, watch.on_switch, 0
        self._ids: list[str] = []
        self._breaks_before = len(graph_break_reasons)
        self._graphs_before = counters["stats"]["unique_graphs"]
        self._made = 0
        self.num = 0  # compilations and graphs made so far; it grows in a step that compiles

    def __enter__(self) -> Compiles:
        callback_handler.register_start_callback(self._begins)
        callback_handler.register_end_callback(self._ends)
        return self

    def __exit__(self, *error: object) -> None:
        callback_handler.remove_start_callback(self._begins)
        callback_handler.remove_end_callback(self._ends)

    @contextlib.contextmanager
    def making(self, *, graphs: int = 0) -> Generator[None]:
        """Times the making of graphs. `graphs`: how many of them torch's compiler does not count itself."""
        self._away()
        try:
            yield
            self._made += graphs
        finally:
            self._back()

    def _begins(self, args: Any) -> None:
        if args.callback_trigger is CallbackTrigger.DYNAMO:
            self._ids.append(str(args.compile_id))
        self._away()

    def _ends(self, _args: Any) -> None:
        self._back()

    def _away(self) -> None:
        """Switches to `compile` without calling `on_switch`, because the part (a forward pass) has not ended."""
        self._depth += 1
        if self._depth > 1:  # a graph made by hand may call the compiler
            return
        self.num += 1
        self._part, self._on_switch = self._watch.part, self._watch.on_switch
        self._watch.on_switch = None
        self._watch.switch(COMPILE)

    def _back(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._watch.switch(self._part)
            self._watch.on_switch = self._on_switch

    @property
    def graphs(self) -> int:
        return self._made + counters["stats"]["unique_graphs"] - self._graphs_before

    def counts(self) -> dict[str, Any]:
        """A graph break is a place in a function where its graph ended early. It is counted once, and not again in its callers.
        A recompilation is a function compiled again, known by its id: `3/1` is the second compilation of function 3.
        """
        broke = {
            (
                end.filename,
                end.lineno,
                end.name,
            ): f"{brief(graph_break.reason)} ({Path(end.filename).name}, line {end.lineno})"
            for graph_break in graph_break_reasons[self._breaks_before :]
            for end in graph_break.user_stack[-1:]
        }
        again = [id_ for id_ in self._ids if not id_.endswith("/0")]
        reasons = {
            metrics.compile_id: reason
            for metrics in get_compilation_metrics()
            if (reason := getattr(metrics, "recompile_reason", None))
        }
        why = [brief(reasons[id_].partition(": ")[2]) for id_ in again if id_ in reasons]
        return {
            "graphs": self.graphs,
            "breaks": len(broke),
            "break_reasons": list(dict.fromkeys(broke.values()))[:_MOST_REASONS],
            "recompiles": len(again),
            "recompile_reasons": list(dict.fromkeys(why))[:_MOST_REASONS],
        }
