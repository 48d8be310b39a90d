"""From a model to a graph: sets up torch.compile and torch.export, calls them, and turns their failures into one
sentence."""

from __future__ import annotations

import contextlib
import numbers
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.exc import FailOnRecompileLimitHit, TorchDynamoException
from torch._dynamo.utils import counters
from torch._inductor.exc import CppCompileError
from torch.utils import _pytree

from paceline.base.blame import users_line
from paceline.base.cache import cache_folder
from paceline.base.compiler_error import cause, no_cxx_compiler, of_compiler
from paceline.base.errors import RunFailed
from paceline.worker.tasks import tree
from paceline.worker.transform.side_effects import in_python, refuse_changes
from paceline.worker.world.env import keep_compiled_in

Leaf = tuple[tuple[int, ...], torch.dtype] | str
_GOODBYE_S = 1.0
USUALLY = "it usually decides something in Python by a number it has just computed (an `if` on a tensor, or .item())"


def tensors(batch: Any) -> list[torch.Tensor]:
    """The tensors of a batch of any nesting, in a fixed order."""
    return [leaf for leaf in tree.leaves_of(batch) if isinstance(leaf, torch.Tensor)]


def signature(batch: Any, *, asked: str) -> tuple[Leaf, ...]:
    """What a graph of fixed shapes was made for: the shape and type of each tensor, and strings and numbers as text.
    Any other object in a batch is refused: whether it has changed cannot be seen, and the graph would keep the first
    one."""
    leaves = tree.leaves_of(batch)
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor | str | bytes | numbers.Number | None):
            raise RunFailed(
                f"{asked}: a batch holds a {type(leaf).__name__}, and a graph of a whole step takes tensors, words and numbers alone: "
                "make a tensor of it, or use graph_of=model or graph=eager",
                kind="mismatch",
            )
    return tuple((tuple(x.shape), x.dtype) if isinstance(x, torch.Tensor) else repr(x) for x in leaves)


class Compiler:
    """torch's compiler, set up for this run. With `kept`, compiled code is stored in our cache for the next run.
    Otherwise it starts with an empty folder that is deleted with the run, so that the compile time is that of a first
    run.

    A function that is compiled again and again is a failure here. torch itself would fall back to eager, and only log
    it.
    """

    def __init__(self, device: torch.device, *, threads: int, kept: bool, backend: str = "inductor") -> None:
        # On a GPU torch compiles kernels in processes of its own. On a host they would be in the way of the steps they have to
        # speed up, so there it compiles by itself.
        self._on_host = device.type == "cpu"
        self._threads, self._kept = 1 if self._on_host else threads, kept
        self.backend = backend  # torch's own unless a test wants one that is quick
        self._open = contextlib.ExitStack()
        self._ready = False
        self._before = _hits()

    def meet_machine(self) -> None:
        """Called at start-up: torch finds out which vector instructions the processor has, by a C++ compiler, once for
        each cache folder (10 s). A forked process has the result already."""
        keep_compiled_in(cache_folder("compiled"))
        if self._on_host:
            from torch._inductor.cpu_vec_isa import pick_vec_isa

            pick_vec_isa()

    def get_ready(self) -> None:
        """Once, before the first compilation."""
        if self._ready:
            return
        import torch._inductor.config
        from torch._inductor.utils import fresh_cache

        torch._inductor.config.compile_threads = self._threads
        torch._dynamo.config.fail_on_recompile_limit_hit = True
        torch._dynamo.config.suppress_errors = (
            False  # an environment may say otherwise, and torch go on without a graph
        )
        if not self._kept:
            self._open.enter_context(fresh_cache())
        self._ready = True

    def cache_state(self) -> str:
        """Whether an earlier run left the compiled code in the cache: `hit`, `miss`, or `fresh` where the cache was not
        used."""
        return "fresh" if not self._kept else "hit" if _hits() > self._before else "miss"

    def close(self) -> None:
        """Deletes what was written for this run alone, and ends the compile processes; loaded code stays in memory. It
        may be called twice."""
        self._open.close()
        if self._ready and not self._on_host:
            from torch._inductor.async_compile import shutdown_compile_workers

            # Told to go, not waited for: they may still be coming up (10 s on a slow disk), and go when they hear nobody any more.
            ending = threading.Thread(target=shutdown_compile_workers, daemon=True)
            ending.start()
            ending.join(_GOODBYE_S)


def _hits() -> int:
    return counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]


@contextlib.contextmanager
def in_words(asked: str, instead: str, source: Path | None = None) -> Generator[None]:
    """Turns whatever torch's compiler raises into one sentence: what was asked, what went wrong, at which line of the
    task in `source`, what to use."""
    try:
        yield
    except FailOnRecompileLimitHit as error:
        limit = torch._dynamo.config.recompile_limit
        raise RunFailed(
            f"{asked}: torch compiled one function {limit} times, each time for other values, and would now go on without a graph: "
            f"{instead}",
            kind="mismatch",
        ) from error
    except (TorchDynamoException, CppCompileError) as error:
        raise RunFailed(_refusal(error, asked, instead, source), kind="mismatch") from error


def _refusal(error: BaseException, asked: str, instead: str, source: Path | None) -> str:
    if no_cxx_compiler(error):
        return f"{asked}: torch.compile needs a C++ compiler here, and there is none (g++ or clang++): install one, or {instead}"
    if of_compiler(error):
        return f"{asked}: torch's compiler fails on the graph of the model: {cause(error)}; {instead}"
    return f"{asked}: torch cannot make it a graph: {_first_line(error)}{users_line(error, source)}; {instead}"


def _first_line(error: BaseException) -> str:
    """Of an error of torch's, which goes on for a page."""
    lines = (line.strip() for line in str(error).splitlines() if line.strip())
    return next(lines, "no message").partition(" (unhinted")[0][:300]


def compiled(module: torch.nn.Module, backend: str) -> torch.nn.Module:
    """Nothing is compiled before the first call. Shapes follow torch's rule: static at first, dynamic in a dimension
    that has changed once."""
    return torch.compile(module, backend=backend)  # pyright: ignore[reportReturnType]


def is_compiled(module: Any) -> bool:
    return isinstance(module, torch._dynamo.eval_frame.OptimizedModule)


class Exported:
    """A module exported as one graph on the first batch it is called with; it trains the module's own parameters. The
    batch dimension is dynamic where torch allows it. A batch that does not fit the graph goes to the module itself, and
    is counted."""

    def __init__(
        self,
        module: torch.nn.Module,
        making: Callable[[], contextlib.AbstractContextManager[None]],
        source: Path | None = None,
    ) -> None:
        """`source`: the task's file, to name its line where it cannot be exported."""
        self.module, self._making, self._source = module, making, source
        self.program: torch.export.ExportedProgram | None = None
        self.num_eager = self.num_graph = 0
        self._graph: Callable[[Any], Any] | None = None
        self._takes: list[_Input] = []

    def __call__(self, batch: Any) -> Any:
        if self._graph is None:
            with self._making():
                self._graph = self._made(batch)
        if not self._fits(batch):
            self.num_eager += 1
            return self.module(batch)
        self.num_graph += 1
        return self._graph(batch)

    def _fits(self, batch: Any) -> bool:
        """A batch of one sample never fits: layers that refuse it (BatchNorm) would not do so in the graph."""
        sizes = {len(tensor) for tensor in tensors(batch) if tensor.dim()}
        if sizes and max(sizes) < 2:
            return False
        leaves, sizes = _pytree.tree_leaves(batch), dict[str, int]()
        return len(leaves) == len(self._takes) and all(
            take.fits(leaf, sizes) for take, leaf in zip(self._takes, leaves, strict=True)
        )

    def _made(self, batch: Any) -> Callable[[Any], Any]:
        free = _pytree.tree_map(
            lambda leaf: {0: torch.export.Dim.AUTO} if isinstance(leaf, torch.Tensor) and leaf.dim() else None, batch
        )
        # torch puts a module's numbers back when it has traced it, so they are looked at when forward ends
        before, after = in_python(self.module, host=False), dict[str, Any]()
        look = self.module.register_forward_hook(lambda *_: after.update(in_python(self.module, host=False)))
        try:
            program = torch.export.export(self.module, (batch,), dynamic_shapes=(free,))
            graph = program.module()
        except Exception as error:
            raise RunFailed(
                f"graph=export: torch cannot export this model as one graph: {_first_line(error)}{users_line(error, self._source)}: "
                f"{USUALLY}; use graph=eager or graph=compile",
                kind="mismatch",
            ) from error
        finally:
            look.remove()
        refuse_changes(before, after or in_python(self.module, host=False), "graph=export")
        _same_tensors(self.module, graph)
        self.program = program
        self._takes = _inputs(program, batch)
        return graph


class _Input:
    """One leaf of the batches that an exported program takes. A static size is a number in the program's inputs; a
    dynamic one is a name, which all inputs of that size share."""

    def __init__(self, leaf: Any, size: Any, ranges: dict[str, tuple[int, int]]) -> None:
        self._leaf = (leaf.dtype, leaf.shape[1:], leaf.dim()) if isinstance(leaf, torch.Tensor) else repr(leaf)
        self._fixed = len(leaf) if isinstance(leaf, torch.Tensor) and leaf.dim() and str(size) not in ranges else None
        self._name = str(size)
        self._least, self._most = ranges.get(self._name, (0, 0))

    def fits(self, leaf: Any, sizes: dict[str, int]) -> bool:
        """`sizes`: the value of each dynamic size in this batch, as far as its leaves were checked."""
        if not isinstance(leaf, torch.Tensor):
            return repr(leaf) == self._leaf
        if (leaf.dtype, leaf.shape[1:], leaf.dim()) != self._leaf:
            return False
        if not leaf.dim() or self._fixed is not None:
            return not leaf.dim() or len(leaf) == self._fixed
        return self._least <= len(leaf) <= self._most and sizes.setdefault(self._name, len(leaf)) == len(leaf)


def _inputs(program: torch.export.ExportedProgram, batch: Any) -> list[_Input]:
    inputs = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    names, leaves = program.graph_signature.user_inputs, _pytree.tree_leaves(batch)
    ranges = {
        str(name): (_whole(limits.lower), _whole(limits.upper)) for name, limits in program.range_constraints.items()
    }
    values = [inputs.get(name) if isinstance(name, str) else None for name in names]
    sizes = [value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else None for value in values]
    return [_Input(leaf, size, ranges) for leaf, size in zip(leaves, sizes, strict=True)]


def _whole(limit: Any) -> int:
    """A limit of torch's: its infinity is no number."""
    return int(limit) if limit.is_finite and limit < sys.maxsize else sys.maxsize


def _same_tensors(module: torch.nn.Module, graph: torch.nn.Module) -> None:
    """The graph must use the module's own tensors: the optimizer holds its parameters, and evaluation reads its running
    statistics."""
    own = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    strangers = [name for name, parameter in graph.named_parameters() if id(parameter) not in own]
    strangers += [
        name for name, buffer in graph.named_buffers() if id(buffer) not in own and name in dict(module.named_buffers())
    ]
    if strangers:
        raise RunFailed(
            f"graph=export: the exported graph has tensors of its own instead of the model's ({', '.join(strangers[:3])}), so it would "
            "train another model: use graph=eager or graph=compile",
            kind="mismatch",
        )
