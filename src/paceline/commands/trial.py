"""`graph=auto` and `kernel=auto`: a few short runs of the ways there are, before the run itself, and the choice they prove.

The ways are tried as they would run: through the same launcher, on as many ranks, with the same data. What counts is the whole run's
time: a graph that saves a tenth of a millisecond a step and takes eight seconds to make is slower for anything short.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from paceline.base.cache import cache_folder
from paceline.base.errors import BadInput, PacelineError
from paceline.base.files import read_json, scratch, write_json
from paceline.launch.warm import Warm
from paceline.records.fingerprint import version
from paceline.records.layout import RunDir
from paceline.records.outcome import TRANSIENT
from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.run import Spec
from paceline.spec.steps import num_steps
from paceline.study.dispatch import run_to_record
from paceline.study.execute import render

if TYPE_CHECKING:
    from paceline.records.record import Record

Way = dict[str, str]  # graph, graph_of, kernel
FIRST_STEPS, LEAST_STEPS, MOST_STEPS = 30, 30, 3000
_LOOK_S = 1.0  # how long each way is looked at, so that a small step is not a few milliseconds of noise
# The quickest graph seen takes some seconds to make when nothing is kept: a shorter run is over before.
WORTH_S = 5.0


def ways(graph: str, kernel: str, device: str) -> list[Way]:
    """Everything that may be tried for what was asked, eager first; which of them can be is for the rules."""
    kernels = ("torch", "fused") if kernel == "auto" else (kernel,)
    graphs = [(graph, "auto")]
    if graph == "auto":
        graphs = [(row.name, row.usual_of) for row in GRAPHS.values() if not row.is_graph]
        graphs += [
            (row.name, "step") for row in GRAPHS.values() if row.of_step and (device == "cuda" or not row.needs_cuda)
        ]
    return [{"graph": g, "graph_of": of, "kernel": k} for g, of in graphs for k in kernels]


def chosen(plain: Spec, others: Sequence[Spec], *, warm: Warm | None, host: str) -> tuple[Spec, dict[str, Any]]:
    """The quickest of these specs for a run of this length, and the figures. `plain` comes first, and is what all are compared with."""
    kept = cache_folder("trials") / f"{_name(plain, others, host)}.json"
    if plain.graph_cache == "keep" and kept.exists():
        figures: dict[str, Any] = read_json(kept)
    else:
        with scratch() as folder:
            figures = _tried(
                plain, others, lambda spec, name: run_to_record(render(spec, RunDir(folder / name)), warm=warm)
            )
        if _complete(others, figures["rows"]):
            write_json(kept, figures)
    return _best(plain, others, figures)


def _tried(plain: Spec, others: Sequence[Spec], run: Callable[[Spec, str], Record]) -> dict[str, Any]:
    first = run(_short(plain, FIRST_STEPS), "first")
    if not first.completed:
        raise BadInput(f"graph=auto, kernel=auto: the trial of {FIRST_STEPS} steps failed: {first.why}")
    assert first.throughput
    step_s, num_train = plain.batch / first.throughput, int(first.train.of or 0)
    num = num_steps(plain, num_train)
    steps = max(LEAST_STEPS, min(MOST_STEPS, math.ceil(_LOOK_S / step_s)))
    rows = [_row(plain, run(_short(plain, steps), "plain"))]
    worth = [spec for spec in others if not GRAPHS[spec.graph].is_graph or num * step_s > WORTH_S]
    rows += [_row(spec, run(_short(spec, steps), f"way{index}")) for index, spec in enumerate(worth)]
    return {"schema": 1, "steps": steps, "rows": rows, "num_train": num_train}


def _complete(others: Sequence[Spec], rows: Sequence[dict[str, Any]]) -> bool:
    """Whether a longer run may rely on it: every way was tried, and none failed for a reason that may be gone tomorrow."""
    passing = TRANSIENT | {"timeout", "memory", "disk"}
    return len(rows) == 1 + len(others) and not any(row.get("kind") in passing for row in rows)


def _short(spec: Spec, steps: int) -> Spec:
    """The same run with few steps, so that only the cost of a step counts: no warm-up of the rate, and averages at least three times."""
    shorter = {"log_every": max(1, steps // 3), "chosen": None, "warmup": 0}
    return spec.of_steps(steps).model_copy(update={**shorter, "sync_every": min(spec.sync_every, FIRST_STEPS // 3)})


def _row(spec: Spec, record: Record) -> dict[str, Any]:
    row: dict[str, Any] = _way(spec)
    if not record.completed or not record.throughput:
        return {**row, "why": record.why or "too few steps to tell", "kind": record.kind}
    compile_s = record.graph.compile_s if record.graph else 0.0
    return {**row, "step_s": spec.batch / record.throughput, "compile_s": compile_s}


def _way(spec: Spec) -> Way:
    return {"graph": spec.graph, "graph_of": spec.graph_of, "kernel": spec.kernel}


def _best(plain: Spec, others: Sequence[Spec], figures: dict[str, Any]) -> tuple[Spec, dict[str, Any]]:
    num = num_steps(plain, figures["num_train"])
    rows = [
        {**row, "run_s": row["compile_s"] + num * row["step_s"]} if "step_s" in row else row for row in figures["rows"]
    ]
    best = min((row for row in rows if "run_s" in row), key=lambda row: row["run_s"], default=None)
    if best is None:
        raise BadInput(f"graph=auto, kernel=auto: none of the ways that were tried ran; the first: {rows[0]['why']}")
    taken = next(
        spec for spec in (plain, *others) if _way(spec) == {k: best[k] for k in ("graph", "graph_of", "kernel")}
    )
    return taken, {"steps_of_the_run": num, "steps_tried": figures["steps"], "ways": rows}


def _name(plain: Spec, others: Sequence[Spec], host: str) -> str:
    """Of what was measured: the experiment but for its length, the ways, and the machine."""
    same = plain.of_steps(None).model_copy(update={"seed": 0, "log_every": 1, "chosen": None})
    what = [same.key(), [_way(spec) for spec in others], host, version("torch"), version("paceline")]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()[:16]


def possible(asked: Sequence[Way], spec: Callable[[Way], Spec]) -> list[Spec]:
    """Those the rules allow; BadInput with the first one's reasons where there is none."""
    specs, refused = list[Spec](), None
    for way in asked:
        try:
            specs.append(spec(way))
        except PacelineError as error:
            refused = refused or error
    if not specs and refused is not None:
        raise refused
    return specs
