"""From a function that changes tensors in place to one compiled call: traced operator by operator on tensors without numbers, autograd
included, then compiled by torch's inductor. No guards: whoever calls it knows that shapes and types are those it was made for.

Why not torch.compile: its frames, guards and functional detours cost a small step as much again as its arithmetic (features, batch
32, one thread: 115 us a step this way, 230 that way), and it cannot follow a custom operator through torch.func.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree


@dataclass(frozen=True, slots=True)
class Traced:
    """`graph` takes `inputs`, in this order, and changes some of them; it returns nothing."""

    graph: torch.fx.GraphModule
    inputs: list[torch.Tensor]


def trace(body: Callable[[Any], None], state: Any, instead: Mapping[Any, Callable[..., Any]] | None = None) -> Traced:
    """`state`: all tensors the body works on, of any nesting (words and numbers among them stay what they are). None of them is
    changed while it is traced; what the body finds elsewhere may be, so whoever calls this looks for that beforehand. `instead`: what
    stands in the trace in the place of some of torch's operators."""
    every, form = _pytree.tree_flatten(state)
    leaves = [leaf for leaf in every if isinstance(leaf, torch.Tensor)]

    def flat(*leaves: Any) -> tuple[()]:
        coming = iter(leaves)
        body(_pytree.tree_unflatten([next(coming) if isinstance(leaf, torch.Tensor) else leaf for leaf in every], form))
        return ()

    with torch.no_grad():
        graph = make_fx(flat, dict(instead or {}), tracing_mode="fake", _allow_non_fake_inputs=True)(*leaves)
    return Traced(graph, [*leaves, *_lifted(graph)])


def _lifted(graph: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Tensors the body found elsewhere (a frozen layer, a mask that is no buffer) become inputs too: as constants they would be a
    copy of today's values."""
    found: dict[str, tuple[torch.fx.Node, torch.Tensor]] = {}
    last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1]
    for node in [node for node in graph.graph.nodes if node.op == "get_attr"]:
        name = str(node.target)
        value = getattr(graph, name, None)
        if not isinstance(value, torch.Tensor):
            continue
        if name not in found:
            with graph.graph.inserting_after(last):
                last = graph.graph.placeholder(f"found_{len(found)}")
            last.meta = dict(node.meta)
            found[name] = last, value
        node.replace_all_uses_with(found[name][0])
        graph.graph.erase_node(node)
    for name in found:
        delattr(graph, name)
    graph.recompile()
    return [value.detach() for _, value in found.values()]


def compile_traced(traced: Traced, *, backend: str) -> Callable[..., Any]:
    """The graph as a call on its inputs; `trace` as a backend runs it operator by operator, which is quick to make."""
    if backend != "inductor":
        return traced.graph
    from torch._inductor import standalone_compile

    # fallback_random: what a layer draws (dropout) is what it would draw eagerly, number for number. No asserts: the inputs are the
    # same tensors in every call.
    return standalone_compile(
        traced.graph, list[Any](traced.inputs), dynamic_shapes="from_example_inputs",
        options={"config_patches": {"fallback_random": True, "size_asserts": False}},
    )  # fmt: skip
