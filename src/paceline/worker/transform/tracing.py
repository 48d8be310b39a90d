"""From a function that changes tensors in place to one compiled call: traced with fake tensors, compiled by torch's inductor.

Autograd is part of the trace. There are no guards: the caller makes sure that shapes and types are those it was traced
with. Why not torch.compile: its frames, guards and functionalization cost a small step as much again as its arithmetic
(features, batch 32, one thread: 115 us a step this way, 230 that way), and it cannot follow a custom operator through
torch.func.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree

from paceline.worker.tasks import tree


@dataclass(frozen=True, slots=True)
class Traced:
    """`graph` takes `inputs`, in this order, and changes some of them; it returns nothing."""

    graph: torch.fx.GraphModule
    inputs: list[torch.Tensor]


def trace(body: Callable[[Any], None], state: Any, instead: Mapping[Any, Callable[..., Any]] | None = None) -> Traced:
    """`state`: all tensors the body works on, of any nesting (strings and numbers among them stay constants). None of
    them is changed while it is traced. Tensors that the body reaches in another way may be changed, so the caller
    checks for that beforehand. `instead`: replacements for some of torch's operators in the trace."""
    every, form = tree.flat(state)
    leaves = [leaf for leaf in every if isinstance(leaf, torch.Tensor)]

    def flat(*leaves: Any) -> tuple[()]:
        coming = iter(leaves)
        body(form.of(next(coming) if isinstance(leaf, torch.Tensor) else leaf for leaf in every))
        return ()

    with torch.no_grad():
        graph = make_fx(flat, dict(instead or {}), tracing_mode="fake", _allow_non_fake_inputs=True)(*leaves)
    return Traced(graph, [*leaves, *_lifted(graph)])


def _lifted(graph: torch.fx.GraphModule) -> list[torch.Tensor]:
    """Tensors that the body reaches without being given them (a frozen layer, a mask that is no buffer) become inputs
    too. As constants they would be a copy of their present values."""
    lifted: dict[str, tuple[torch.fx.Node, torch.Tensor]] = {}
    last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1]
    for node in [node for node in graph.graph.nodes if node.op == "get_attr"]:
        name = str(node.target)
        value = getattr(graph, name, None)
        if not isinstance(value, torch.Tensor):
            continue
        if name not in lifted:
            with graph.graph.inserting_after(last):
                last = graph.graph.placeholder(f"lifted_{len(lifted)}")
            last.meta = dict(node.meta)
            lifted[name] = last, value
        node.replace_all_uses_with(lifted[name][0])
        graph.graph.erase_node(node)
    for name in lifted:
        delattr(graph, name)
    graph.recompile()
    return [value.detach() for _, value in lifted.values()]


def written_twice(traced: Traced) -> bool:
    """Whether an input that the graph changes shares memory with another input. Run operator by operator that works;
    torch's compiler takes inputs for separate, reorders reads and writes, and computes something else without an
    error."""
    written = {_origin(leaf) for node in traced.graph.graph.nodes for leaf in _changed(node)}
    spans = list[tuple[int, int, bool]]()
    placeholders = [node for node in traced.graph.graph.nodes if node.op == "placeholder"]
    for node, tensor in zip(placeholders, traced.inputs, strict=True):
        if tensor.numel():
            last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            spans.append((tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size(), node in written))
    end = end_written = 0
    for start, stop, changes in sorted(spans):
        if start < (end if changes else end_written):
            return True
        end, end_written = max(end, stop), max(end_written, stop if changes else 0)
    return False


def _changed(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The arguments that an operator changes in place."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    names = [argument.name for argument in node.target._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    changed = [
        argument.name
        for argument in node.target._schema.arguments
        if argument.alias_info and argument.alias_info.is_write
    ]
    leaves = _pytree.tree_leaves([given.get(name) for name in changed])
    return [leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)]


def _origin(node: torch.fx.Node) -> torch.fx.Node:
    """What it is a view of, if it is one."""
    while (
        isinstance(node.target, torch._ops.OpOverload)
        and node.target.is_view
        and isinstance(node.args[0], torch.fx.Node)
    ):
        node = node.args[0]
    return node


def compile_traced(traced: Traced, *, backend: str) -> Callable[[], Any]:
    """The graph as a call on its inputs. With any backend but inductor it runs operator by operator, without compilation."""
    graph, inputs = traced.graph, traced.inputs
    if backend != "inductor":
        return lambda: graph(*inputs)
    from torch._inductor import standalone_compile

    # fallback_random: what a layer draws (dropout) is what it would draw eagerly, number for number. No asserts: the inputs are the
    # same tensors in every call.
    made: Any = standalone_compile(
        graph, list[Any](inputs), dynamic_shapes="from_example_inputs",
        options={"config_patches": {"fallback_random": True, "size_asserts": False}},
    )  # fmt: skip
    bare = _bare(made, inputs)
    return (lambda: made(*inputs)) if bare is None else lambda: bare(list(inputs))


def _bare(made: Any, inputs: list[torch.Tensor]) -> Callable[[list[torch.Tensor]], Any] | None:
    """The function that inductor generated, without torch's wrappers (they take 7 us a call with 44 inputs, of the 110
    us of a small step on a CPU; on a GPU the step is recorded, and called once). The wrappers handle gradients,
    outputs, and inputs that share memory. Here nothing has a gradient and nothing is returned; where inputs share
    memory, the wrappers stay."""
    from torch._inductor.output_code import CompiledFxGraph

    places = [tensor.untyped_storage().data_ptr() for tensor in inputs if tensor.numel()]
    alone = len(set(places)) == len(places) and all(tensor.device.type == "cpu" for tensor in inputs)
    compiled = inspect.unwrap(getattr(made, "_compiled_fn", made))
    return compiled.current_callable if alone and isinstance(compiled, CompiledFxGraph) else None
