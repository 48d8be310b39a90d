"""The task's model with its embedding tables cut over ranks, or why they cannot be; and the tables of a model that was built so."""

from __future__ import annotations

from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.worker.sharding.lookup import CutTable, Exchange
from paceline.worker.sharding.sharded_init import Cut, Cutting, ShardedInitTensor
from paceline.worker.tasks.task import Task


def build_cut(task: Task, exchange: Exchange, *, split: str) -> torch.nn.Module:
    """The task's model with its tables cut; each rank allocates only its own part of them."""
    cut = Cut(split, exchange.world.rank, exchange.world.size)
    with Cutting(cut):
        model = task.build_model()
    tables = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Embedding)}
    if why := _hindrance(task, model, tables):
        raise RunFailed(f"{task.name}: sharding=embedding {why}", kind="mismatch")
    for table in tables.values():
        part: Any = table._parameters["weight"]
        table._parameters["weight"] = torch.nn.Parameter(part.shard.values, requires_grad=part.requires_grad)
        # Its class is changed, not the module: hooks, names and whoever else holds it stay as they are.
        table.__class__ = CutTable
        assert isinstance(table, CutTable)
        table.cut, table.exchange, table.room = cut, exchange, {True: 0, False: 0}
    return model


def build_outline(task: Task) -> torch.nn.Module:
    """The task's model with tables that have a shape and no values, to inspect it where a whole table may not fit into
    memory."""
    with Cutting(None):
        return task.build_model()


def _hindrance(task: Task, model: torch.nn.Module, tables: dict[str, torch.nn.Embedding]) -> str | None:
    """Why these tables cannot be cut."""
    if any(isinstance(module, torch.nn.EmbeddingBag) for module in model.modules()):
        return "cannot cut an nn.EmbeddingBag, which sums rows where they lie: use nn.Embedding and sum its rows"
    if not tables:
        return "cuts the model's nn.Embedding tables over ranks, and it has none: use another sharding"
    for name, table in tables.items():
        if type(table) is not torch.nn.Embedding:
            return f"cannot cut {name}: {type(table).__name__} is its own kind of nn.Embedding; use nn.Embedding itself"
        if table.max_norm is not None or table.scale_grad_by_freq:
            return f"cannot cut {name}: max_norm and scale_grad_by_freq need the whole table; leave them out"
        if not isinstance(table._parameters["weight"], ShardedInitTensor):
            return f"cannot cut {name}: it was made of numbers that are there already (from_pretrained); fill a new nn.Embedding"
    owned = {id(table._parameters["weight"]) for table in tables.values()}
    for name, module in model.named_modules():
        for key, parameter in module.named_parameters(recurse=False):
            if isinstance(parameter, ShardedInitTensor) and (
                module not in tables.values() or id(parameter) not in owned
            ):
                where = f"{name}.{key}" if name else key
                return f"cannot cut a table that is also {where}: weights that are shared need the whole table"
    if len(owned) != len(tables):
        return "cannot cut two tables that share one weight: use one nn.Embedding for both"
    return None


def cut_tables(model: torch.nn.Module) -> dict[str, CutTable]:
    """By the names their weights have in the model's state."""
    return {
        f"{name}.weight" if name else "weight": module
        for name, module in model.named_modules()
        if isinstance(module, CutTable)
    }
