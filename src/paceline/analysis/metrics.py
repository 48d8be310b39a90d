"""The figures that a run is judged by: their names, directions and practical sizes. A table; it computes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Literal

from paceline.records.findings import Metric
from paceline.records.record import Record

TRAINING, WALL, TO_TARGET, THROUGHPUT = "time.training_s", "time.wall_s", "time.to_target_s", "throughput"
GAP = "gap."  # of a score: training samples less test samples

_TIMES = (
    Metric(TO_TARGET, "time to target", "s", "lower", "ratio", 0.02),
    Metric(TRAINING, "training time", "s", "lower", "ratio", 0.02),
    Metric(WALL, "wall time", "s", "lower", "ratio", 0.02, main=False),
    Metric(THROUGHPUT, "throughput", "samples/s", "higher", "ratio", 0.02),
)
# Compared is what a rank's model and step need. The others hold the data set on one process and share it on several, or count shared
# pages once a rank: between world sizes they would say who holds the data, and not who needs more.
_STEP = Metric(
    "memory.step_bytes", "memory of model and step", "bytes", "lower", "ratio", 0.02, floor=256 * 1024, main=False
)
_MEMORY = (
    _STEP,
    *(
        replace(_STEP, name=f"memory.{name}", title=title, compared=False)
        for name, title in (
            ("sizes.data", "data set"),  # once for all ranks of a machine where they share it
            ("machine_bytes", "memory of a machine (shared pages once)"),
            ("peak_bytes", "memory (allocator)"),
            ("rss_bytes", "memory (process)"),
        )
    ),
)
_SIZES = tuple(
    Metric(f"memory.sizes.{name}", f"memory of {title}", "bytes", "lower", "ratio", 0.02, compared=False, main=False)
    for name, title in (
        ("parameters", "parameters"),
        ("gradients", "gradients"),
        ("optimizer", "optimizer state"),
        ("activations", "activations"),
    )
)
# What a rank gives to a collective and what it sends for it differ by a factor of the collective's kind and the number of ranks.
_TRAFFIC = tuple(
    Metric(f"traffic.{name}", title, "bytes", "lower", "ratio", 0.02, compared=False, main=False)
    for name, title in (
        ("bytes_per_step", "bytes given to collectives a step"),
        ("sent_bytes_per_step", "bytes sent a step (ring)"),
    )
)
_MESSAGES = Metric(
    "traffic.messages_per_step", "collectives a step", "", "lower", "ratio", 0.02, compared=False, main=False
)
# Of runs whose steps were made into graphs; how often is exact, and no figure to compare.
_GRAPH = (
    Metric("graph.compile_s", "compile time", "s", "lower", "ratio", 0.02, compared=False),
    Metric("graph.breaks", "graph breaks", "", "lower", "difference", 1, compared=False, main=False),
    Metric("graph.recompiles", "recompilations", "", "lower", "difference", 1, compared=False, main=False),
)
_ENERGY = Metric("energy.joules_per_sample", "energy per sample", "J", "lower", "ratio", 0.02, main=False)
_COST = Metric("cost.total", "cost", "", "lower", "ratio", 0.02, compared=False, main=False)  # the wall time in money
# Of runs that were profiled. How large a share is too large depends on the task: neither way is better.
_DATA_SHARE = Metric("profile.clean.data_share", "batch assembly", "fraction", None, "difference", 0.02)
_PASS = Metric("profile.clean.total_s", "time of the pass", "s", "lower", "ratio", 0.02, compared=False, main=False)
# All that are not named after a score or a module.
FIXED = (*_TIMES, *_MEMORY, *_SIZES, *_TRAFFIC, _MESSAGES, *_GRAPH, _ENERGY, _COST, _DATA_SHARE, _PASS)
_TYPES, _MODULES = "profile.types.", "profile.by_name."
_OF_A_MODULE: dict[str, tuple[str, Literal["s", "bytes", ""]]] = {
    "forward_s": ("forward", "s"), "backward_s": ("backward", "s"), "device_s": ("on the GPU", "s"), "calls": ("calls", ""),
    "bytes": ("memory", "bytes"),
}  # fmt: skip


def _score(name: str, better: str | None) -> Metric:
    """A score of the test set. Only accuracy is known to be a fraction; any other matters from 1 % of its own size."""
    if name == "accuracy":
        return Metric("test.accuracy", "test accuracy", "fraction", "higher", "difference", 0.002)
    direction: Literal["higher", "lower"] | None = (
        "higher" if better == "higher" else "lower" if better == "lower" else None
    )
    return Metric(f"test.{name}", f"test {name}", "", direction, "difference", 0.01, relative=True)


def _loss(split: str) -> Metric:
    return Metric(f"{split}.loss", f"{split} loss", "", "lower", "difference", 0.01, relative=True, main=False)


def _names(records: Iterable[Record]) -> list[str]:
    """Every score any run has, the task's own first, in the order of first appearance."""
    names = dict.fromkeys(name for record in records for name in (*record.test.names, *record.train.names))
    return [name for name in names if name != "loss"]


def main_score(records: Iterable[Record]) -> tuple[str, str | None] | None:
    """(name, direction) of the score the task calls its own."""
    for record in records:
        if record.own_score and record.own_score.name:
            return record.own_score.name, record.own_score.better
    return None


def _of_module(name: str) -> Metric:
    """`profile.types.Linear.forward_s` and the like, by a title that can be read."""
    module, _, figure = name.removeprefix(_TYPES).removeprefix(_MODULES).rpartition(".")
    word, unit = _OF_A_MODULE.get(figure, (figure, ""))
    return Metric(name, f"{module}, {word}", unit, "lower", "ratio", 0.02)


def _profiled(records: Iterable[Record], quoted: Collection[str]) -> list[Metric]:
    """What a profile offers to compare: the share of batch assembly, the forward time of every type, and whatever a report quotes."""
    profiles = [record.profile for record in records if record.profile is not None]
    types = dict.fromkeys(f"{_TYPES}{name}.forward_s" for profile in profiles for name in profile.types)
    names = dict.fromkeys([*types, *(name for name in quoted if name.startswith((_TYPES, _MODULES)))])
    metrics = [_DATA_SHARE, _PASS, *(_of_module(name) for name in names)]
    # Where a report asks for some of them, the others would only make the table wide.
    asked = {metric.name for metric in metrics} & set(quoted)
    return [replace(metric, main=not asked or metric.name in asked) for metric in metrics]


def table(records: list[Record], quoted: Collection[str] = ()) -> tuple[Metric, ...]:
    """All metrics of these runs, in the order they are shown; what a report has a figure for is there even if no run has it."""
    own = main_score(records)
    names = sorted(_names(records), key=lambda name: own is None or name != own[0])
    scores: list[Metric] = []
    for name in names:
        test = _score(name, own[1] if own and name == own[0] else None)
        is_own = own is None or name == own[0]
        scores.append(replace(test, main=is_own))
        scores.append(replace(test, name=f"train.{name}", title=f"train {name}", compared=False, main=False))
        gap = f"{GAP}{name}"  # between two samples of one run: where a report speaks of it
        if gap in quoted:
            scores.append(replace(test, name=gap, title=f"train {name} less test {name}", better=None, compared=False))
    metrics = (
        *_TIMES,
        *scores,
        _loss("test"),
        replace(_loss("train"), compared=False),
        *_MEMORY,
        *_SIZES,
        *_TRAFFIC,
        _MESSAGES,
        *_GRAPH,
        _ENERGY,
        _COST,
    )
    metrics = (*metrics, *_profiled(records, quoted))
    return tuple(m for m in metrics if m.name in quoted or any(record.metric(m.name) is not None for record in records))
