"""What was really applied, read back from the objects themselves, and compared with what was asked: this is the evidence."""

from __future__ import annotations

import platform
from typing import Any

import torch

from paceline.base.errors import RunFailed
from paceline.records.fingerprint import version
from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.run import Spec
from paceline.worker.assemble import Parts
from paceline.worker.optim import build as optim
from paceline.worker.optim.scale import nothing_trained
from paceline.worker.optim.schedule import top_lr
from paceline.worker.sharding.build import not_as_asked
from paceline.worker.transform import kernel, precision, remat, synced_norm
from paceline.worker.world.collectives import carried
from paceline.worker.world.env import onednn_limit


def read_back(parts: Parts, computed: tuple[str, ...] = ()) -> dict[str, Any]:
    """Values read from the objects; `buffers` is the rule used. The types that layers gave (`computed`) are known after the first
    step, so mixed precision shows only then; a rank that had no sample is given rank 0's."""
    group = parts.optimizer.param_groups[0]
    dtypes = precision.floating(parts.model.parameters())
    computed = parts.step.computed or computed
    arithmetic = parts.arithmetic.read_back()
    return {
        "world_size": parts.world.size,
        "backend": parts.world.backend,
        "messages": carried(parts.world),
        **({"mpi": parts.world.library} if parts.world.library else {}),
        "device": parts.world.device.type,
        "threads": torch.get_num_threads(),
        **({"onednn_limit": limit} if (limit := onednn_limit()) is not None else {}),
        "dtypes": {"parameters": dtypes, **({"compute": list(computed)} if computed else {})},
        "precision": precision.word(
            dtypes, computed, tf32=any(arithmetic["tf32"].values()), fp8=bool(arithmetic.get("fp8", {}).get("ran"))
        ),
        **arithmetic,
        **parts.step.read_back(),
        **parts.update.read_back(),
        "remat": remat.read_back(parts.model),
        **({"recomputed": remat.recomputed(parts.model)} if parts.spec.remat != "none" else {}),
        **kernel.read_back(parts.model),
        "sharding": parts.sharding.word,
        "exchange": parts.sharding.read_back(),
        "buffers": _buffers(parts),
        "optimizer": {
            **optim.classes(parts.optimizer),
            **({"update": way} if (way := optim.way(parts.optimizer)) else {}),
            **{name: group[name] for name in ("lr", "weight_decay", "momentum", "nesterov") if name in group},
        },
        "data": {"train": parts.train.kind, "test": parts.test.kind},
        "task": parts.task.defines,
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": version("numpy"),
            "paceline": version("paceline"),
        },
    }


def _buffers(parts: Parts) -> str:
    """The rule used; `sync` is read from the layers."""
    asked = parts.spec.buffers
    synced = asked == "sync" and (parts.world.size == 1 or synced_norm.read_back(parts.model))
    return asked if asked != "sync" or synced else "mean"


def check(spec: Spec, applied: dict[str, Any]) -> None:
    """asked == got, or the run fails in one sentence before its first step.

    Of mixed precision this is the weights' part; the step compares what was computed, before the first update.
    """
    asked = {
        "world_size": spec.topology.world_size, "backend": spec.backend, "device": spec.device,
        "threads": spec.threads, "precision": "fp32" if precision.is_mixed(spec) else spec.precision,
        "sharding": spec.sharding, "buffers": spec.buffers, "remat": spec.remat, "kernel": spec.kernel, **_between(spec),
    }  # fmt: skip
    wrong = [f"{name} {want}, got {applied[name]}" for name, want in asked.items() if applied[name] != want]
    wrong += _products(spec, applied)
    wrong += not_as_asked(spec, applied.get("exchange", {}))
    wrong += _optimizer(spec, applied["optimizer"])
    if wrong:
        raise RunFailed(f"asked for {'; '.join(wrong)}", kind="mismatch")


def _optimizer(spec: Spec, applied: dict[str, Any]) -> list[str]:
    """Of a task's own optimizer the settings say nothing but the learning rate, which it was given."""
    rule = OPTIMIZERS[spec.optimizer]
    if rule.is_tasks:
        return []
    wrong = []
    if applied["class"] not in (rule.torch_class, rule.sparse_class):
        wrong.append(f"optimizer {spec.optimizer}, got {applied['class']}")
    asked = {
        "lr": top_lr(spec),
        **{name: getattr(spec, name) for name in ("update", "weight_decay", "momentum", "nesterov")},
    }
    return wrong + [
        f"{name} {want}, got {applied[name]}"
        for name, want in asked.items()
        if name in applied and applied[name] != want
    ]


def _products(spec: Spec, applied: dict[str, Any]) -> list[str]:
    """Convolutions and matrix products may each use TF32, which no dtype shows."""
    want = spec.precision == "tf32"
    got: dict[str, bool] = applied.get("tf32", {})
    return [f"tf32={want} for a {name}, got {uses_tf32}" for name, uses_tf32 in got.items() if uses_tf32 != want]


def _between(spec: Spec) -> dict[str, str]:
    """What carries sums between ranks; alone there is nothing to carry."""
    return {"messages": spec.messages} if spec.topology.world_size > 1 else {}


def graph_not_as_asked(spec: Spec, seen: dict[str, Any]) -> list[str]:
    """A graph is there when a step went through it: before the first one there is nothing to compare."""
    asked = (spec.graph, spec.graph_of if GRAPHS[spec.graph].is_graph else None)
    if (seen["graph"], seen["graph_of"]) == asked:
        return []
    few = " (its first steps are ordinary ones: use more steps)" if spec.is_step_graph else ""
    return [f"graph {spec.graph} of the {spec.graph_of}, got {seen['graph']}{few}"]


def check_steps(spec: Spec, seen: dict[str, Any]) -> None:
    """The same for what only the steps could show."""
    wrong = _products(spec, seen)  # the task's own code ran since they were set
    wrong += not_as_asked(spec, seen["exchange"], after_steps=True)
    if not wrong and seen["precision"] != spec.precision:
        wrong.append(f"precision {spec.precision}, got {seen['precision']}")
    wrong += graph_not_as_asked(spec, seen)
    wrong += [f"{name} {want}, got {seen[name]}" for name, want in _between(spec).items() if seen[name] != want]
    rates: dict[str, Any] = seen["rate"]
    if rates["lr"] != rates.get("groups", [rates["scheduled"]]):
        wrong.append(f"schedule {spec.schedule}, whose last rate is {rates['scheduled']}, got {rates['lr']}")
    if (seen["clip"] or {}).get("at") != spec.clip:
        wrong.append(f"clip {spec.clip}, got {seen['clip']}")
    if wrong:
        raise RunFailed(f"asked for {'; '.join(wrong)} after the last step", kind="mismatch")
    if why := remat.nothing_recomputed(spec, seen.get("recomputed", 0)):
        raise RunFailed(why, kind="mismatch")
    if why := nothing_trained(seen.get("scaler") or seen.get("accelerate")):
        raise RunFailed(why, kind="nonfinite")
    if seen["accumulate"] != spec.accumulate:
        raise RunFailed(
            f"asked for accumulate={spec.accumulate}, but no rank's step had more than {seen['accumulate']} micro-batches: the data "
            "has too few samples",
            kind="mismatch",
        )
