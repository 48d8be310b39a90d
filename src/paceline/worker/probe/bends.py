"""Whether a loss bends after it was reduced: `loss.clamp(min=0.5)`, `(loss - 0.1).abs()`, `loss1 * loss2`.

Such a loss may look like a mean on some samples and weights, and is none on others. So the operations are looked at, not their values.
"""

from __future__ import annotations

import math
from typing import Any

import torch

# What sums and means of parts go through unchanged. A product or a quotient is one of these where only its first part has a gradient.
_STRAIGHT = frozenset(
    f"{name}Backward{number}"
    for name in (
        "Add", "Sub", "Rsub", "Neg", "Mul", "Div", "Sum", "Mean", "Alias", "Clone", "View", "UnsafeView", "ReshapeAlias", "Squeeze",
        "Unsqueeze", "Expand", "ToCopy", "Select", "Permute", "T", "Slice", "AsStrided",
    )
    for number in ("0", "1", "2")
)  # fmt: skip
_PRODUCTS = frozenset({"MulBackward0", "DivBackward0"})


def bends(value: torch.Tensor, outputs: list[torch.Tensor]) -> bool:
    """`value`: one number, of a whole batch. `outputs`: what the model gave for it."""
    ends = {node for output in outputs if (node := _node_of(output)) is not None}
    reach: dict[Any, bool] = {}
    queue, done = [value.grad_fn], set[Any]()
    while queue:
        node = queue.pop()
        if node is None or node in done or not _is_number(node):
            continue
        done.add(node)
        inside = [following for following, _ in node.next_functions if following is not None]
        reached = [following for following in inside if _reaches(following, ends, reach)]
        # a number that is reduced here bends nothing yet
        before = [following for following in reached if _is_number(following)]
        if before and (node.name() not in _STRAIGHT or (node.name() in _PRODUCTS and len(reached) > 1)):
            return True
        queue += before
    return False


def _node_of(tensor: torch.Tensor) -> Any:
    """Of a leaf it is the node that adds up its gradient."""
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    return tensor.view_as(tensor).grad_fn.next_functions[0][0] if tensor.requires_grad else None  # pyright: ignore[reportOptionalMemberAccess]


def _is_number(node: Any) -> bool:
    given = getattr(node, "_input_metadata", None)  # of what the node has computed
    return bool(given) and all(math.prod(one.shape) == 1 for one in given)


def _reaches(start: Any, ends: set[Any], known: dict[Any, bool]) -> bool:
    """Whether the gradient goes on to an output of the model."""
    stack = [start]
    while stack:
        node = stack[-1]
        if node in known:
            stack.pop()
            continue
        following = [] if node in ends else [one for one, _ in node.next_functions if one is not None]
        if left := [one for one in following if one not in known]:
            stack += left
            continue
        known[node] = node in ends or any(known[one] for one in following)
        stack.pop()
    return known[start]
