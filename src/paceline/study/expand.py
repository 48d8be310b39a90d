"""From a study file to cells: every combination, a spec a repeat, refusals kept as skipped cells. Pure but for the host it is given."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paceline.base.errors import BadInput
from paceline.records import study as records
from paceline.records.study import CellPlan, StudyPlan
from paceline.spec.run import Spec
from paceline.spec.settings import NOT_THE_EXPERIMENT
from paceline.spec.study import StudyFile

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


def matches(cell: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(str(cell.get(name)) == str(value) for name, value in wanted.items())


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
    file: StudyFile, make_spec: MakeSpec, check: Callable[[Mapping[str, Any]], list[str]], *, quick: bool
) -> Expanded:
    """`check` finds values that are wrong by themselves (bad input); what `make_spec` refuses is a cell with a reason."""
    swept = list(dict.fromkeys(name for cell in combinations(file) for name in cell))
    cells: list[CellPlan] = []
    specs: dict[str, list[Spec]] = {}
    wrong: list[str] = []
    for cell in combinations(file):
        asked = {"timeout": STUDY_TIMEOUT_S, **file.settings, **cell}
        wrong += [text for text in check(asked) if text not in wrong]
        if "seed" in cell:
            wrong.append("seed cannot be swept: it is what the repeats of a cell differ in")
        if wrong:
            continue
        label = _label(cell, file.task)
        if label in specs or label in [known.label for known in cells]:
            continue
        try:
            first = make_spec(asked)
        except BadInput as error:
            cells.append(
                CellPlan(
                    label=label,
                    settings=cell,
                    spec=dict(asked),
                    folder="",
                    skipped="; ".join(error.problems),
                    reference=_reference(file, cell),
                )
            )
            continue
        if first.seed + file.repeats > 2**31:
            raise BadInput(f"seed={first.seed} with {file.repeats} repeats: seeds must stay below 2**31")
        repeats = [first.model_copy(update={"seed": first.seed + repeat}) for repeat in range(file.repeats)]
        specs[label] = repeats
        cells.append(
            CellPlan(
                label=label, settings=cell, spec=first.plain(), folder=_folder(label, asked),
                keys=[spec.key() for spec in repeats], reference=_reference(file, cell),
            )
        )  # fmt: skip
    if wrong:
        raise BadInput(wrong)
    if not specs:
        raise BadInput([f"{cell.label}: {cell.skipped}" for cell in cells])
    runnable = [cell for cell in cells if cell.skipped is None]
    baseline = _find(runnable, file.baseline, "baseline") if file.baseline else runnable[0].label
    plan = StudyPlan(
        schema=1, name=file.study, about=file.about, task=file.task, quick=quick, swept=swept, repeats=file.repeats,
        seed=file.order_seed, baseline=baseline, source=file.reference.source if file.reference else "", cells=cells,
        conclusions=_conclusions(file, cells), notes=file.notes,
    )  # fmt: skip
    return Expanded(plan, specs)


def _reference(file: StudyFile, cell: Mapping[str, Any]) -> dict[str, float]:
    rows = file.reference.rows if file.reference else []
    return next((row.values for row in rows if matches(cell, row.cell)), dict[str, float]())


def _conclusions(file: StudyFile, cells: list[CellPlan]) -> list[records.Conclusion]:
    """A conclusion about a cell that this matrix has not got cannot be judged, and is left out."""
    conclusions: list[records.Conclusion] = []
    for said in file.reference.conclusions if file.reference else []:
        labels = [[c.label for c in cells if matches(c.settings, wanted)] for wanted in (said.baseline, said.candidate)]
        if all(len(names) == 1 for names in labels):
            conclusions.append(
                records.Conclusion(
                    claim=said.claim, metric=said.metric, says=said.says, note=said.note,
                    baseline=labels[0][0], candidate=labels[1][0],
                )
            )  # fmt: skip
    return conclusions
