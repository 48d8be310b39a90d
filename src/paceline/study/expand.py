"""From a study file to cells: every combination, a spec a repeat, refusals kept as skipped cells. Pure but for the host it is given."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.base.errors import BadInput
from paceline.records import study as records
from paceline.records.study import CellPlan, StudyPlan
from paceline.spec.conclusion import Conclusion, Reference, matches
from paceline.spec.run import Spec
from paceline.spec.settings import NOT_THE_EXPERIMENT
from paceline.spec.study import Change, StudyFile

STUDY_TIMEOUT_S = 3600.0

MakeSpec = Callable[[Mapping[str, Any]], Spec]


@dataclass(frozen=True, slots=True)
class Expanded:
    """The plan that is written down, and the specs that are run: `specs[cell label][repeat]`."""

    plan: StudyPlan
    specs: dict[str, list[Spec]]


def combinations(file: StudyFile) -> list[dict[str, Any]]:
    """What is swept, in the order it was written; later names vary fastest."""
    products = [dict(zip(file.sweep, values, strict=True)) for values in itertools.product(*file.sweep.values())]
    return [{**cell, **combination} for cell in (file.cells or [{}]) for combination in products]


def _label(cell: Mapping[str, Any], task: str) -> str:
    return " ".join(f"{name}={value}" for name, value in cell.items()) or task


def _folder(label: str, asked: Mapping[str, Any]) -> str:
    """Readable and unique: the runs of another matrix in the same folder never have the same names."""
    what = {name: str(value) for name, value in asked.items() if name not in NOT_THE_EXPERIMENT}
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', label).strip('-')[:60]}-{digest}"


def _find(cells: list[CellPlan], wanted: Mapping[str, Any], what: str) -> str:
    labels = [cell.label for cell in cells if matches(cell.settings, wanted)]
    if len(labels) != 1:
        said = "no cell is" if not labels else f"{len(labels)} cells are"
        raise BadInput(f"{what} {dict(wanted)}: {said} like that (cells: {'; '.join(cell.label for cell in cells)})")
    return labels[0]


def expand(
    file: StudyFile, make_spec: MakeSpec, check: Callable[[Mapping[str, Any]], list[str]], *, quick: bool,
    changed: Sequence[Change] = (),
) -> Expanded:  # fmt: skip
    """`check` finds values that are wrong by themselves (bad input); what `make_spec` refuses is a cell with a reason.

    `changed`: what the command line made another of the study's file.
    """
    wanted = _wanted(file, check)
    swept = list(dict.fromkeys(name for cell in combinations(file) for name in cell))
    made = {label: _made(make_spec, asked) for label, (_, asked) in wanted.items()}
    notes = [*file.notes]
    if "device" not in swept and len({spec.device for spec in made.values() if isinstance(spec, Spec)}) > 1:
        made, note = _on_one_device(make_spec, {label: asked for label, (_, asked) in wanted.items()}, made)
        notes.append(note)
    cells, specs = list[CellPlan](), dict[str, list[Spec]]()
    for label, (cell, asked) in wanted.items():
        first = made[label]
        if isinstance(first, Spec):
            specs[label] = _repeats(first, file.repeats)
        cells.append(_cell(file, label, cell=cell, asked=asked, specs=specs.get(label, str(first))))
    if not specs:
        raise BadInput([f"{cell.label}: {cell.skipped}" for cell in cells])
    runnable = [cell for cell in cells if cell.skipped is None]
    baseline = _find(runnable, file.baseline, "baseline") if file.baseline else runnable[0].label
    said = file.reference or Reference(source="")
    plan = StudyPlan(
        schema=1, name=file.study, about=file.about, task=file.task, quick=quick, swept=swept, repeats=file.repeats,
        seed=file.order_seed, baseline=baseline, source=said.source, cells=cells, repeated=said.repeated,
        rows_of=said.rows_of, conclusions=[_conclusion(one, cells) for one in said.conclusions], notes=notes,
        changed=[one.words for one in changed], scaled_down=any(one.shorter for one in changed),
    )  # fmt: skip
    return Expanded(plan, specs)


def with_claims(plan: StudyPlan, file: StudyFile) -> StudyPlan:
    """The plan of runs that are made, with the claims and figures of the report as the study's file has them now."""
    said = file.reference or Reference(source="")
    cells = [cell.model_copy(update={"reference": _reference(file, cell.settings)}) for cell in plan.cells]
    claims = [_conclusion(one, cells) for one in said.conclusions]
    return plan.model_copy(
        update={
            "source": said.source,
            "repeated": said.repeated,
            "rows_of": said.rows_of,
            "conclusions": claims,
            "cells": cells,
        }
    )


def _reference(file: StudyFile, cell: Mapping[str, Any]) -> dict[str, float]:
    rows = file.reference.rows if file.reference else []
    return next((row.values for row in rows if matches(cell, row.cell)), dict[str, float]())


def _wanted(
    file: StudyFile, check: Callable[[Mapping[str, Any]], list[str]]
) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Every cell once by its label: what is swept in it, and all that is asked for; BadInput with every wrong value."""
    cells = combinations(file)
    wrong: list[str] = []
    devices = [str(cell["device"]) for cell in cells if "device" in cell]
    if devices and ("auto" in devices or len(devices) < len(cells)):
        wrong.append(
            "device: a study compares on one device, unless it compares devices; then name one for every cell (cpu or cuda, not auto)"
        )
    if any("seed" in cell for cell in cells):
        wrong.append("seed cannot be swept: it is what the repeats of a cell differ in")
    wanted: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for cell in cells:
        asked = {"timeout": STUDY_TIMEOUT_S, **file.settings, **cell}
        wrong += [text for text in check(asked) if text not in wrong]
        wanted.setdefault(_label(cell, file.task), (cell, asked))
    if wrong:
        raise BadInput(wrong)
    return wanted


def _made(make_spec: MakeSpec, asked: Mapping[str, Any]) -> Spec | str:
    """The spec of a cell, or why a rule refuses it."""
    try:
        return make_spec(asked)
    except BadInput as error:
        return "; ".join(error.problems)


def _on_one_device(
    make_spec: MakeSpec, wanted: Mapping[str, Mapping[str, Any]], made: Mapping[str, Spec | str]
) -> tuple[dict[str, Spec | str], str]:
    """device=auto chose one by one: on a machine with one GPU that is the GPU for one process and the CPU for two, and their
    difference would be that of the devices. All run where every cell can."""
    poor = [label for label, spec in made.items() if isinstance(spec, Spec) and spec.device == "cpu"]
    note = (
        f"Every cell runs on the CPU, because a study compares on one device and {poor[0]} has no GPU for each of its processes "
        "here. With device=cuda the cells that have one run on it, and the others are refused."
    )
    return {label: _made(make_spec, {**asked, "device": "cpu"}) for label, asked in wanted.items()}, note


def _repeats(first: Spec, num: int) -> list[Spec]:
    if first.seed + num > 2**31:
        raise BadInput(f"seed={first.seed} with {num} repeats: seeds must stay below 2**31")
    return [first.model_copy(update={"seed": first.seed + repeat}) for repeat in range(num)]


def _cell(
    file: StudyFile, label: str, *, cell: dict[str, Any], asked: Mapping[str, Any], specs: list[Spec] | str
) -> CellPlan:
    """`specs`: one a repeat, or why there are none."""
    reference = _reference(file, cell)
    if isinstance(specs, str):
        return CellPlan(label=label, settings=cell, spec=dict(asked), folder="", skipped=specs, reference=reference)
    return CellPlan(
        label=label, settings=cell, spec=specs[0].plain(), folder=_folder(label, asked), keys=[spec.key() for spec in specs],
        reference=reference,
    )  # fmt: skip


def _conclusion(said: Conclusion, cells: list[CellPlan]) -> records.Conclusion:
    """About the cells of this matrix. One that it has not got, or has several times, stays as it was said: it names no cell."""

    def label(wanted: Mapping[str, Any]) -> str:
        names = [cell.label for cell in cells if matches(cell.settings, wanted)]
        return names[0] if len(names) == 1 else _label(wanted, "")

    pair = said.equal_work
    return records.Conclusion(
        **said.model_dump(exclude={"baseline", "candidate", "equal_work"}),
        baseline=label(said.baseline), candidate=label(said.candidate),
        equal_work=(label(pair.baseline), label(pair.candidate)) if pair else None,
    )  # fmt: skip
