"""Speed-up and efficiency of each topology, strong or weak said aloud. Only for studies that sweep `on`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from paceline.analysis.compare import Question, effect, point, sample
from paceline.analysis.metrics import THROUGHPUT, TRAINING
from paceline.records.findings import MIN_RUNS, Metric, Scaling
from paceline.records.study import CellRecord, StudyRecord
from paceline.spec.topology import parse

Kind = Literal["strong", "weak", "mixed"]


# Two forms of one setting: the batch of all ranks, and that of each.
_FORMS = ("batch", "batch_per_rank")


def kind_of(baseline: Mapping[str, Any], cell: Mapping[str, Any]) -> Kind:
    """strong: the same global batch, so less work for each rank; weak: the same batch on each rank; mixed: neither."""
    if _batch(baseline) == _batch(cell):
        return "strong"
    return "weak" if _per_rank(baseline) == _per_rank(cell) else "mixed"


def _batch(spec: Mapping[str, Any]) -> float:
    each = spec.get("batch_per_rank")
    return float(spec.get("batch") or 0) if each is None else each * parse(str(spec["on"])).world_size


def _per_rank(spec: Mapping[str, Any]) -> float:
    return _batch(spec) / parse(str(spec["on"])).world_size


def _world_size(cell: CellRecord) -> int:
    return parse(str(cell.plan.spec["on"])).world_size


def _others(cell: CellRecord) -> dict[str, Any]:
    return {name: value for name, value in cell.plan.settings.items() if name not in ("on", *_FORMS)}


def _base_of(cell: CellRecord, study: StudyRecord, baseline: CellRecord) -> CellRecord | None:
    """The cell on the baseline's topology with the same other settings: a speed-up by ranks must not be mixed with one by precision.

    Of several batches there, the one that is the same in all or on each rank.
    """
    on = baseline.plan.spec.get("on")
    rows = [c for c in study.cells if c.plan.spec.get("on") == on and _others(c) == _others(cell)]
    alike = [c for c in rows if kind_of(c.plan.spec, cell.plan.spec) != "mixed"]
    return next(iter(alike or rows), None)


def _row(base: CellRecord, cell: CellRecord, metrics: dict[str, Metric]) -> Scaling | None:
    """Strong scaling does the same work in less time; otherwise the work differs, and only its rate can be compared."""
    kind = kind_of(base.plan.spec, cell.plan.spec)
    metric = metrics.get(TRAINING if kind == "strong" else THROUGHPUT)
    label, size, ideal = cell.plan.label, _world_size(cell), _world_size(cell) / _world_size(base)
    if metric is None or (of := sample(Question(metric, base, cell))) is None:
        return None
    if cell is base:
        return Scaling(label, size, kind, 1.0, None, None, 1.0, metric.name, base.plan.label, ideal, of.n)
    measured = effect(metric, of) if of.n >= MIN_RUNS else None
    value, low, high = (measured.value, measured.low, measured.high) if measured else (point(metric, of), None, None)
    if metric.better == "lower":
        value, low, high = 1 / value, high and 1 / high, low and 1 / low
    return Scaling(label, size, kind, value, low, high, value / ideal, metric.name, base.plan.label, ideal, of.n)


def scaling(study: StudyRecord, metrics: dict[str, Metric]) -> tuple[Scaling, ...]:
    baseline = next((cell for cell in study.cells if cell.plan.label == study.plan.baseline), None)
    if "on" not in study.plan.swept or baseline is None:
        return ()
    rows = [_row(base, cell, metrics) for cell in study.cells if (base := _base_of(cell, study, baseline))]
    return tuple(row for row in rows if row is not None)
