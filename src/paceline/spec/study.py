"""The study file: what a user writes to ask for a matrix of runs. Checked value by value, each problem at its line and column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from paceline.base.errors import BadInput
from paceline.base.names import unknown
from paceline.spec import settings, yaml
from paceline.spec.conclusion import Reference, Scalar, Values
from paceline.spec.explain import problems
from paceline.spec.resolve import check_values
from paceline.spec.settings import Frozen
from paceline.spec.tasks import BUILTIN, known_task, task_file

Sweep = dict[str, Annotated[list[Scalar], Field(min_length=1)]]


class Quick(Frozen):
    """What `--quick` changes: under two minutes on two cores, and no verdict on a report."""

    settings: Values = Field(default_factory=dict[str, Scalar])
    sweep: Sweep = Field(default_factory=dict[str, list[Scalar]])
    cells: list[Values] = Field(default_factory=list[Values], description="instead of the study's own")
    repeats: Annotated[int, Field(ge=1)] = 3


class StudyFile(Frozen):
    study: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="its name: a folder below runs/")]
    about: str = ""
    task: str = Field(description="a built-in task, or path/to/file.py[:Class] (relative to this file)")
    settings: Values = Field(default_factory=dict[str, Scalar], description="settings of every cell")
    sweep: Sweep = Field(
        default_factory=dict[str, list[Scalar]], description="settings with several values: every combination is a cell"
    )
    cells: list[Values] = Field(
        default_factory=list[Values], description="cells said one by one; combined with the sweep"
    )
    repeats: Annotated[int, Field(ge=1, le=1000)] = 5
    order_seed: int = Field(
        default=0, description="seed of the order in which cells are run inside each block of repeats"
    )
    baseline: Values | None = Field(
        default=None, description="the cell that others are compared with; the first one otherwise"
    )
    quick: Quick = Field(default_factory=Quick)
    reference: Reference | None = None
    notes: list[str] = Field(default_factory=list[str], description="what a reader of the report must know")

    @model_validator(mode="after")
    def _something_to_run(self) -> StudyFile:
        if "seed" in self.sweep or any("seed" in cell for cell in self.cells):
            raise ValueError("seed cannot be swept: it is what the repeats of a cell differ in")
        both = sorted(set(self.settings) & set(self.sweep))
        if both:
            raise ValueError(f"{', '.join(both)} stands in settings and in sweep; leave it in one of them")
        return self


def parse(document: yaml.Document) -> StudyFile:
    """The study, or BadInput with every problem at its place."""
    if not hasattr(document.value, "keys"):
        raise BadInput(f"{document.at(())}: a study file is a mapping with `study`, `task` and `sweep`")
    try:
        value: Any = document.value
        file = StudyFile.model_validate(value)
    except ValidationError as error:
        sentences: list[str] = []
        for place, text in problems(error, known=StudyFile.model_fields):
            name = ".".join(map(str, place))
            sentences.append(f"{document.at(place)}: {name + ': ' if name else ''}{text}")
        raise BadInput(sentences) from None
    wrong = [f"{document.at(place)}: {text}" for place, text in _wrong_values(file)]
    if wrong:
        raise BadInput(wrong)
    return file


def load(path: Path) -> StudyFile:
    """A task or data given as a relative path is relative to the file, wherever the command is run."""
    file = parse(yaml.read_file(path))
    if isinstance(data := file.settings.get("data"), str):
        file = file.model_copy(
            update={"settings": {**file.settings, "data": str(path.parent / Path(data).expanduser())}}
        )
    if task_file(file.task) and not Path(file.task).is_absolute():
        file = file.model_copy(update={"task": str((path.parent / file.task).resolve())})
    return file


def _wrong_values(file: StudyFile) -> list[tuple[yaml.Place, str]]:
    """Every value against the type of its setting; a name that is no setting must be a parameter of a built-in task."""
    params = [param.name for param in BUILTIN[file.task].params] if file.task in BUILTIN else None
    wrong: list[tuple[yaml.Place, str]] = []

    def look(name: str, value: Any, place: yaml.Place) -> None:
        if name in settings.Settings.model_fields:
            wrong.extend((place, text) for text in check_values({name: value}))
        elif params is not None and name not in params:
            wrong.append((place, unknown("setting", name, [*params, *settings.names()])))

    for base, part in ((("settings",), file.settings), (("quick", "settings"), file.quick.settings)):
        for name, value in part.items():
            look(name, value, (*base, name))
    for base, sweep in ((("sweep",), file.sweep), (("quick", "sweep"), file.quick.sweep)):
        for name, values in sweep.items():
            for index, value in enumerate(values):
                look(name, value, (*base, name, index))
    for base, cells in ((("cells",), file.cells), (("quick", "cells"), file.quick.cells)):
        for index, cell in enumerate(cells):
            for name, value in cell.items():
                look(name, value, (*base, index, name))
    return wrong


# Settings that exclude each other: asking for one takes the other out of the file.
_EITHER = ({"epochs", "steps"}, {"batch", "batch_per_rank"})


def _without(names: set[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` less these names and whatever they exclude."""
    gone = names | {other for pair in _EITHER if pair & names for other in pair}
    return {name: value for name, value in values.items() if name not in gone}


def with_words(file: StudyFile, words: Mapping[str, str]) -> StudyFile:
    """Command-line words over the file: one value sets a setting, several (`a,b`) sweep it. What was typed wins everywhere."""
    typed = set(words)
    own, sweep = _without(typed, file.settings), _without(typed, file.sweep)
    cells = [_without(typed, cell) for cell in file.cells]
    for name, text in words.items():
        values = [value.strip() for value in text.split(",")]
        if any(not value for value in values):
            raise BadInput(f"{name}={text}: a value is missing between the commas")
        if len(values) == 1:
            own[name] = values[0]
        else:
            sweep[name] = list(dict.fromkeys(values))
    change: dict[str, Any] = {"settings": own, "sweep": sweep, "cells": cells}
    if file.baseline is not None and _without(typed, file.baseline) != file.baseline:
        change["baseline"] = None  # the cell it named is not in this matrix any more: the first one stands in
        change["notes"] = [
            *file.notes,
            "The study's own baseline was changed on the command line: the first cell is the baseline.",
        ]
    return file.model_copy(update=change)


def quickened(file: StudyFile, words: Mapping[str, str]) -> StudyFile:
    """The scaled-down study; what the user typed stays as typed."""
    quick, typed = file.quick, set(words)
    settings, sweep = _without(typed, quick.settings), _without(typed, quick.sweep)
    changed = set(settings) | set(sweep)
    own, swept = {**_without(changed, file.settings), **settings}, {**_without(changed, file.sweep), **sweep}
    change = {"study": f"{file.study}-quick", "settings": own, "sweep": swept, "repeats": file.quick.repeats}
    return file.model_copy(update=change | ({"cells": quick.cells} if quick.cells else {}))


# What a run's length follows from, and the parameters of tasks that say how many samples there are.
_LENGTHS = ("epochs", "steps", "num_")


@dataclass(frozen=True, slots=True)
class Change:
    """A word on the command line that makes another study of the one in the file."""

    words: str
    shorter: bool


def changes(file: StudyFile, words: Mapping[str, str]) -> list[Change]:
    """What the words change in the study. A report must say it: its verdicts are about what was run."""
    found: list[Change] = []
    for name, text in words.items():
        was = _values_of(file, name)
        if name in settings.NOT_THE_EXPERIMENT or [str(value) for value in was] == [
            value.strip() for value in text.split(",")
        ]:
            continue
        of = f" (the study: {','.join(map(str, was))})" if was else ""
        said = "FOLDER" if name == "data" else text  # where it lies is nobody's business, that it was given is
        found.append(Change(f"{name}={said}{of}", _is_shorter(name, text, was)))
    return found


def _values_of(file: StudyFile, name: str) -> list[Any]:
    """Of a setting in this study: in its settings, its sweep or its cells, or as the task has it."""
    if name in file.settings:
        return [file.settings[name]]
    if name in file.sweep:
        return [*file.sweep[name]]
    if own := [cell[name] for cell in file.cells if name in cell]:
        return list(dict.fromkeys(own))
    entry = known_task(file.task)
    usual = {**{param.name: param.default for param in entry.params}, **entry.defaults}
    return [usual[name]] if usual.get(name) is not None else []


def _is_shorter(name: str, text: str, was: Sequence[Any]) -> bool:
    if not name.startswith(_LENGTHS):
        return False
    try:
        return not was or max(map(float, text.split(","))) < max(map(float, was))
    except ValueError:
        return False


def schema() -> dict[str, Any]:
    """JSON schema for editors: a study file whose settings complete and check themselves."""
    document = StudyFile.model_json_schema()
    own = settings.Settings.model_json_schema()["properties"]
    lists = {name: {"type": "array", "items": value, "minItems": 1} for name, value in own.items()}
    document["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    document["properties"]["settings"]["properties"] = own
    document["properties"]["sweep"]["properties"] = lists
    return document
