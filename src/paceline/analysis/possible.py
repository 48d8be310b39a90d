"""Which figures a run can ever have: a claim about any other would stand in a study for ever, unjudged. Data, and one question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from paceline.analysis.metrics import FIXED, GAP, TO_TARGET
from paceline.base.names import unknown
from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.tasks import BUILTIN
from paceline.spec.topology import parse

Spec = Mapping[str, Any]

_NAMES = tuple(metric.name for metric in FIXED)
_OPEN = ("test.", "train.", GAP, "profile.types.", "profile.by_name.")  # named after a score or a module


def _profiled(spec: Spec) -> str | None:
    return None if _of(spec, "profile", "none") != "none" else "only runs with profile= have it"


def _trained(spec: Spec) -> str | None:
    return "a run with profile= has no figures of training" if _of(spec, "profile", "none") != "none" else None


def _together(spec: Spec) -> str | None:
    alone = parse(str(_of(spec, "on", "1x1"))).world_size == 1
    return "one process sends nothing" if alone else _trained(spec)


def _graphed(spec: Spec) -> str | None:
    return _trained(spec) if GRAPHS[str(_of(spec, "graph", "eager"))].is_graph else "an eager step makes no graph"


def _target(spec: Spec) -> str | None:
    return "no target is set" if _of(spec, "target", None) is None else _trained(spec)


def _priced(spec: Spec) -> str | None:
    return "no price is set" if not _of(spec, "price", None) else _trained(spec)


# The longest beginning of a name that fits decides.
_WHEN: Mapping[str, Callable[[Spec], str | None]] = {
    "profile.": _profiled, "traffic.": _together, "graph.": _graphed, "cost.": _priced, TO_TARGET: _target,
}  # fmt: skip


def _of(spec: Spec, name: str, usual: Any) -> Any:
    value = spec.get(name)
    return usual if value is None else value


def why_never(metric: str, task: str, spec: Spec) -> str | None:
    """Why no run of this spec has the figure; None where one may have it. A user's own scores are known to the task alone."""
    if metric not in _NAMES and not metric.startswith(_OPEN):
        return unknown("metric", metric, _NAMES)
    of, _, score = metric.partition(".")
    if of in ("test", "train", GAP[:-1]) and task in BUILTIN and score not in ("loss", "accuracy"):
        return f"{task} has loss and accuracy, and no {score}"
    fits = [name for name in _WHEN if metric.startswith(name)]
    return _WHEN[max(fits, key=len)](spec) if fits else _trained(spec)
