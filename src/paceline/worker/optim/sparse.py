"""Sparse gradients: which parameters get them, and what an update can do with them. nn.Embedding(sparse=True) is where they come from.

A gradient of that kind holds the rows a batch used and nothing else: a table of millions of rows is then updated row by row.
"""

from __future__ import annotations

import torch

from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.run import Spec


def sparse_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Weights of tables that were made with sparse=True; a table that is cut over ranks is one of them."""
    weights: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding | torch.nn.EmbeddingBag) and module.sparse:
            weight = module._parameters["weight"]
            if weight is not None and weight.requires_grad:
                weights[id(weight)] = weight
    return list(weights.values())


def gradient_rows(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    """What there is to change in a parameter's gradient: a sparse one's rows, each of them once."""
    gradient = parameter.grad
    if gradient is None or gradient.layout != torch.sparse_coo:
        return gradient
    if not gradient.is_coalesced():
        parameter.grad = gradient = gradient.coalesce()
    return gradient._values()


def refusal(spec: Spec) -> str | None:
    """Why these settings cannot send or use a sparse gradient, in one sentence; None where they can."""
    rule = OPTIMIZERS[spec.optimizer]
    if not SHARDINGS[spec.sharding].sparse_gradients or spec.wrap != "none" or GRAPHS[spec.graph].is_graph:
        return (
            f"sparse gradients with sharding={spec.sharding} wrap={spec.wrap} graph={spec.graph}: only our own messages and eager "
            "steps carry them; use sharding=none or embedding, wrap=none and graph=eager, or a table with sparse=False"
        )
    if rule.sparse_class is None:
        return (
            f"optimizer={spec.optimizer} with sparse gradients: torch has it for dense gradients only; use sgd or adam, or a table "
            "with sparse=False"
        )
    if spec.weight_decay != 0:
        return (
            f"weight_decay={spec.weight_decay} with sparse gradients: it would shrink every row in every step, also those that no "
            "sample used; leave it out, or use a table with sparse=False"
        )
    if spec.momentum > 0:
        return (
            f"momentum={spec.momentum} with sparse gradients: it would move every row in every step, also those that no sample used; "
            "leave it out, or use a table with sparse=False"
        )
    if spec.update == "fused" and not rule.fused_takes_sparse:
        return (
            f"update=fused with sparse gradients: torch's fused {spec.optimizer} takes dense gradients only; use update=foreach "
            "or single"
        )
    return None
