"""Studies that nobody ran, on disk as real ones are: events through EventLog, records through gather, from a pinned seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.base.files import write_json
from paceline.records import events
from paceline.records.gather import Ended, gather
from paceline.records.layout import RunDir, StudyDir
from paceline.records.study import CellPlan, Conclusion, StudyPlan, StudyRecord, load_study
from paceline.spec.run import Spec

FINGERPRINT: dict[str, Any] = {
    "schema": 1, "host": "bench-1", "system": "Linux 6.1", "machine": "x86_64", "cpu": "Example CPU 3.0 GHz", "cores": 8,
    "memory_bytes": 16 * 2**30, "gpus": 0, "python": "3.11.7", "versions": {"paceline": "0.1.0", "torch": "2.11.0"},
    "git": {"commit": "0123456789abcdef0123", "changed": False}, "argv": ["paceline"],
}  # fmt: skip
START_T = 1.7e9


@dataclass(frozen=True)
class Cell:
    """What a made-up cell is like: its mean training time and score, and how its runs end."""

    label: str
    settings: dict[str, Any]
    training_s: float
    score: float = 0.97
    broken: dict[int, str] = field(default_factory=dict)  # repeat -> why it failed
    skipped: str | None = None
    repeats: int | None = None
    reference: dict[str, float] = field(default_factory=dict)
    late: int | None = None  # the rank that all others wait for


@dataclass(frozen=True)
class Study:
    cells: list[Cell]
    name: str = "mnist-scaling"
    about: str = "Report B1: the ConvNet on one and two machines"
    task: str = "mnist-convnet"
    swept: tuple[str, ...] = ("on",)
    repeats: int = 5
    epochs: int = 4
    marks: int = 12
    quick: bool = False
    score: tuple[str, str] = ("accuracy", "higher")
    target: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    conclusions: list[Conclusion] = field(default_factory=list)
    source: str = "Report B, table B1 (hardware that it does not name)"
    seed: int = 7


def _score_at(study: Study, cell: Cell, share: float, noise: float) -> float:
    """A learning curve: fast at first, then flat, ending at the cell's score."""
    if study.score[1] == "higher":
        return min(0.9999, cell.score * (1 - 0.25 * math.exp(-4 * share)) + noise)
    return cell.score * (1 + 1.5 * math.exp(-4 * share)) + abs(noise)


def _rank_events(study: Study, cell: Cell, spec: Spec, rank: int, repeat: int, training_s: float) -> list[events.Event]:
    rng = random.Random(f"{study.seed}-{cell.label}-{rank}-{repeat}")
    shared = random.Random(f"{study.seed}-{cell.label}-{repeat}")
    startup, each = 1.2, training_s / study.epochs
    size = spec.topology.world_size
    told: list[events.Event] = [
        events.Started(rank, f"bench-{rank // spec.topology.processes + 1}", 1000 + rank, START_T + startup),
        events.Applied({"world_size": size, "backend": "gloo", "device": "cpu"}, START_T + startup),
    ]
    name, iteration = study.score[0], 0
    for epoch in range(study.epochs):
        for mark in range(study.marks):
            iteration += 100
            share = (epoch + (mark + 1) / study.marks) / study.epochs
            loss = 0.1 + 1.9 * math.exp(-5 * share) + rng.gauss(0, 0.03)
            t = START_T + startup + each * (epoch + (mark + 1) / study.marks)
            told.append(events.Mark(
                epoch, iteration, {"loss": loss, name: _score_at(study, cell, share, rng.gauss(0, 0.005))}, 3200 // size,
                3200, each / study.marks, epoch == 0 and mark == 0, t,
            ))  # fmt: skip
        share = (epoch + 1) / study.epochs
        for split in ("train", "test"):
            value = _score_at(study, cell, share, shared.gauss(0, 0.0015))
            loss = 0.1 + 1.9 * math.exp(-5 * share) + shared.gauss(0, 0.004)
            own = {"loss": loss + rng.gauss(0, 0.01), name: value}
            of = 2000 if split == "test" else 10_000
            t = START_T + startup + each * (epoch + 1)
            told.append(
                events.Epoch(
                    split,
                    epoch,
                    iteration,
                    own,
                    of // size,
                    {"loss": loss, name: value},
                    of,
                    of,
                    5e-4,
                    t - START_T - startup,
                    t,
                )
            )
    if repeat in cell.broken:
        return [*told[: len(told) // 2], events.Broke("task", cell.broken[repeat], told[len(told) // 2].t)]
    memory = {
        "peak_bytes": 40 * 2**20, "step_bytes": 35 * 2**20, "steady_bytes": 12 * 2**20, "reserved_bytes": None,
        "allocator": "malloc", "why": None,
        "peak_in": "backward", "rss_bytes": int((300 + rng.random()) * 2**20), "rss_steady_bytes": 290 * 2**20, "pss_bytes": 200 * 2**20,
        "parts": {
            "parameters": 2**20, "gradients": 2**20, "optimizer": 2 * 2**20, "activations": 30 * 2**20, "data": 5 * 2**20,
            "other": 2**20,
        },
    }  # fmt: skip
    parts, late = _parts(cell, size, rank, training_s, rng)
    score: dict[str, str | None] = {"name": name, "better": study.score[1]}
    return [*told, events.Finished(
        parts, training_s, memory, "hash", 4266, score, told[-1].t + 0.2, startup={"import": 0.07, "data": 0.02, "model": 0.01},
        late=late,
    )]  # fmt: skip


def _parts(
    cell: Cell, size: int, rank: int, training_s: float, rng: random.Random
) -> tuple[dict[str, float | None], dict[str, float]]:
    """What a rank did with the training time, and how often it came last: the cell's `late` rank nearly always, if it has one."""
    share = {"data": 0.05, "forward": 0.33, "backward": 0.46, "optimizer": 0.11, "logging": 0.005}
    talk = 0.3 * (1 - 1 / size)
    slow = cell.late is not None and rank == cell.late
    wait = 0.0 if slow else talk * (0.6 if cell.late is not None else 0.2 + 0.05 * rng.random())
    parts: dict[str, float | None] = {name: value * (1 - talk) * training_s for name, value in share.items()}
    parts |= {
        "startup": 0.1,
        "compile": None,
        "step": None,
        "waiting": wait * training_s,
        "transfer": (talk - wait) * training_s,
    }
    if slow:  # what the others wait, it computes
        parts["transfer"], parts["backward"] = 0.4 * talk * training_s, parts["backward"] + 0.6 * talk * training_s
    if size == 1:
        parts |= {"waiting": None, "transfer": None}
    inside = sum(value or 0.0 for name, value in parts.items() if name != "startup")
    parts["evaluation"] = training_s - inside
    last = {None: 4800 // size, rank: 4700}.get(cell.late, 100 // size)
    return parts, {
        "last": last,
        "behind": last,
        "of": 4804,
        "lag_s": 0.6 * talk * training_s if slow else 0.01,
    } if size > 1 else {}


def _write_run(study: Study, cell: Cell, spec: Spec, run: RunDir, repeat: int, block: float) -> None:
    noise = random.Random(f"{study.seed}-time-{cell.label}-{repeat}").gauss(0, 0.02)
    training_s = cell.training_s * math.exp(block + noise)
    write_json(run.spec, spec.plain())
    for rank in range(spec.topology.world_size):
        log = events.EventLog(run.events(rank))
        for event in _rank_events(study, cell, spec, rank, repeat, training_s):
            if spec.profile == "none" or not isinstance(event, events.Mark | events.Epoch):  # a profile trains nothing
                log.write(event)
        log.close()
    if spec.profile != "none":
        share = {"data_share": (0.1 + 0.5 * spec.workers) * math.exp(noise)}
        types = {"Linear": {"forward_s": training_s, "calls": 10}}
        write_json(run.profile, {"schema": 1, "clean": share, "types": types, "by_name": {}})
    record = gather(run, spec, Ended(START_T, training_s + 2.5), fingerprint=FINGERPRINT)
    write_json(run.result, record.plain)


def write(study: Study, path: Path) -> StudyRecord:
    """The study on disk, and as it is read back."""
    folder = StudyDir(path)
    plans: list[CellPlan] = []
    blocks = [random.Random(f"{study.seed}-block-{repeat}").gauss(0, 0.03) for repeat in range(study.repeats)]
    for index, cell in enumerate(study.cells):
        specs = [
            Spec(task=study.task, target=study.target, seed=100 + repeat, **{**study.settings, **cell.settings})
            for repeat in range(study.repeats)
        ]
        plan = CellPlan(
            label=cell.label, settings=cell.settings, spec=specs[0].plain(), folder=f"cell_{index:03d}",
            keys=[] if cell.skipped else [spec.key() for spec in specs], skipped=cell.skipped, reference=cell.reference,
        )  # fmt: skip
        plans.append(plan)
        made = study.repeats if cell.repeats is None else cell.repeats
        for repeat, spec in enumerate([] if cell.skipped else specs[:made]):
            _write_run(study, cell, spec, folder.run(plan.folder, repeat), repeat, blocks[repeat])
    plan = StudyPlan(
        schema=1, name=study.name, about=study.about, task=study.task, quick=study.quick, swept=list(study.swept),
        repeats=study.repeats, baseline=study.cells[0].label, source=study.source, cells=plans,
        conclusions=study.conclusions,
    )  # fmt: skip
    write_json(folder.plan, plan.model_dump(mode="json", by_alias=True))
    return load_study(path)


def _figures(seconds: float, accuracy: float) -> dict[str, float]:
    return {"time.training_s": seconds, "test.accuracy": accuracy}


def scaling_study(**changes: Any) -> Study:
    """Report B1 with everything a report has to show: references, conclusions, a failed, a partial and a refused cell."""
    cells = [
        Cell("1x1", {"on": "1x1"}, 40.0, 0.9755, reference=_figures(186, 0.9777)),
        Cell("1x2", {"on": "1x2"}, 23.5, 0.9751, reference=_figures(120, 0.9346)),
        Cell(
            "2x1", {"on": "2x1"}, 25.0, 0.9753, {2: "worker on bench-2 lost its link"}, reference=_figures(99, 0.9349)
        ),
        Cell("2x2", {"on": "2x2"}, 15.2, 0.9752, reference=_figures(67, 0.9188), late=3),
        Cell("2x4", {"on": "2x4"}, 12.0, 0.97, dict.fromkeys(range(5), "out of memory: <b>4 GiB</b> asked & refused")),
        Cell("4x4", {"on": "4x4"}, 9.0, skipped="4 machines were asked for, this allocation has 2"),
    ]
    conclusions = [
        Conclusion(claim="Two machines are faster than one", metric="time.training_s", baseline="1x1", candidate="2x1", says="lower"),
        Conclusion(claim="More machines, less accuracy", metric="test.accuracy", baseline="1x1", candidate="2x2", says="lower"),
        Conclusion(claim="Sixteen processes are fastest", metric="time.training_s", baseline="1x1", candidate="4x4", says="lower"),
    ]  # fmt: skip
    return Study(**{"cells": cells, "conclusions": conclusions, "target": 0.96, **changes})


def wide_study(num_cells: int = 24) -> Study:
    """Many cells, a score that is an error and not an accuracy, long labels."""
    cells = [
        Cell(f"optimizer={name} batch={batch}", {"optimizer": name, "batch": batch}, 30.0 * 32 / (batch + 20), 2.0 + 0.05 * i)
        for i, (name, batch) in enumerate((n, 16 * 2**b) for n in ("adam", "adamw", "sgd", "rmsprop") for b in range(6))
    ][:num_cells]  # fmt: skip
    return Study(
        cells, name="optimizers", about="", task="regression.py:Housing", swept=("optimizer", "batch"), repeats=3,
        score=("mae", "lower"), source="",
    )  # fmt: skip
