"""A study on disk: the matrix as it was planned (`study.json`) and the records its cells have so far."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from paceline.base.errors import BadInput
from paceline.base.files import read_json
from paceline.records.layout import StudyDir
from paceline.records.record import Record, find, load
from paceline.spec.conclusion import Repeated, Stated
from paceline.spec.settings import Frozen


class CellPlan(Frozen):
    """One place in the matrix; `settings` are the swept values only, `keys` one experiment key a repeat."""

    label: str
    settings: dict[str, Any]
    spec: dict[str, Any]
    folder: str
    keys: list[str] = Field(default_factory=list[str])
    skipped: str | None = None
    reference: dict[str, float] = Field(
        default_factory=dict[str, float], description="the report's figures, by metric name"
    )


class Conclusion(Stated):
    """Of a report, between two cells of this matrix by their labels; by what was looked for, where there is no such cell."""

    baseline: str
    candidate: str
    equal_work: tuple[str, str] | None = None


class StudyPlan(Frozen):
    schema_version: int = Field(1, alias="schema")
    name: str
    about: str = ""
    task: str
    quick: bool = False
    swept: list[str]
    repeats: int
    seed: int = 0
    baseline: str
    source: str = Field(default="", description="where the reference figures come from")
    cells: list[CellPlan]
    conclusions: list[Conclusion] = Field(default_factory=list[Conclusion])
    rows_of: str | None = Field(
        default=None, description="which report those are of, where claims of several are judged"
    )
    repeated: list[Repeated] = Field(default_factory=list[Repeated])
    changed: list[str] = Field(
        default_factory=list[str], description="what the command line changed of the study's file"
    )
    scaled_down: bool = Field(default=False, description="some of that made it shorter")
    notes: list[str] = Field(default_factory=list[str])

    model_config = {"populate_by_name": True}


@dataclass(frozen=True, slots=True)
class CellRecord:
    plan: CellPlan
    records: tuple[tuple[int, Record], ...]  # (repeat, record), completed and failed alike

    @property
    def completed(self) -> tuple[tuple[int, Record], ...]:
        return tuple((repeat, record) for repeat, record in self.records if record.completed)

    @property
    def failed(self) -> tuple[tuple[int, Record], ...]:
        return tuple((repeat, record) for repeat, record in self.records if not record.completed)


@dataclass(frozen=True, slots=True)
class StudyRecord:
    path: Path
    plan: StudyPlan
    cells: tuple[CellRecord, ...]
    loose: bool = False  # no study planned these runs: order and seeds were not controlled

    @property
    def done(self) -> int:
        return sum(len(cell.records) for cell in self.cells)


def load_plan(folder: StudyDir) -> StudyPlan:
    try:
        return StudyPlan.model_validate(read_json(folder.plan))
    except ValidationError as error:
        raise BadInput(f"{folder.plan}: not a study of ours ({error.error_count()} fields are wrong)") from None


def load_study(path: Path) -> StudyRecord:
    """What is on disk now; a run whose key is not the planned one belongs to another matrix and is left out."""
    folder = StudyDir(path)
    plan = load_plan(folder)
    cells: list[CellRecord] = []
    for cell in plan.cells:
        rows: list[tuple[int, Record]] = []
        for repeat, key in enumerate(cell.keys):
            run = folder.run(cell.folder, repeat)
            if run.finished and (record := load(run.path)).key == key:
                rows.append((repeat, record))
        cells.append(CellRecord(cell, tuple(rows)))
    return StudyRecord(path, plan, tuple(cells))


def loose_study(path: Path) -> StudyRecord:
    """A folder of runs that no study planned (or one run): cells are what share a spec but for the seed."""
    groups: dict[str, list[Record]] = {}
    for record in find(path):
        spec = {k: v for k, v in record.asked.items() if k not in ("seed", "timeout")}
        groups.setdefault(repr(sorted(spec.items(), key=lambda item: item[0])), []).append(record)
    if not groups:
        raise BadInput(f"{path}: no finished run and no study in it")
    specs = [records[0].asked for records in groups.values()]
    names = dict.fromkeys(name for spec in specs for name in spec if name not in ("seed", "schema", "data_stamp"))
    swept = [name for name in names if len({repr(spec.get(name)) for spec in specs}) > 1]
    cells: list[CellRecord] = []
    for index, records in enumerate(groups.values()):
        settings = {name: records[0].asked.get(name) for name in swept}
        label = " ".join(f"{k}={v}" for k, v in settings.items()) or str(records[0].spec["task"])
        plan = CellPlan(label=label, settings=settings, spec=records[0].spec, folder=f"cell_{index}")
        cells.append(CellRecord(plan, tuple(enumerate(records))))
    plan = StudyPlan(
        schema=1, name=path.name, task=str(specs[0]["task"]), swept=swept, repeats=max(len(c.records) for c in cells),
        baseline=cells[0].plan.label, cells=[cell.plan for cell in cells],
    )  # fmt: skip
    return StudyRecord(path, plan, tuple(cells), loose=True)
