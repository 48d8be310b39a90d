"""YAML 1.2 with a position for every value: the only file that knows ruamel. Safe loading: plain data or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.base.errors import BadInput

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Document:
    path: str
    value: Any
    marks: dict[Place, tuple[int, int]]

    def at(self, place: Place) -> str:
        """`study.yaml:11:19` for a place in the document, or for the nearest place around it."""
        for end in range(len(place), -1, -1):
            if place[:end] in self.marks:
                line, column = self.marks[place[:end]]
                return f"{self.path}:{line}:{column}"
        return self.path


def read(text: str, *, path: str) -> Document:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        node: Any = YAML(typ="safe", pure=True).compose(text)  # pyright: ignore[reportUnknownMemberType]
        value: Any = YAML(typ="safe", pure=True).load(text)  # pyright: ignore[reportUnknownMemberType]
        marks: dict[Place, tuple[int, int]] = {}
        if node is not None:
            _walk(node, (), marks)
    except MarkedYAMLError as error:
        raise BadInput(_syntax(error, path)) from None
    except (YAMLError, ValueError) as error:
        raise BadInput(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise BadInput(
            f"{path}: nested too deeply to be a study file, or inside itself (an alias of its own anchor)"
        ) from None
    return Document(path, value, marks)


def _syntax(error: Any, path: str) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else path
    return f"{where}: not valid YAML: {' '.join(str(error.problem or error.context).split())}"


def read_file(path: Path) -> Document:
    try:
        return read(path.read_text(encoding="utf-8"), path=str(path))
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise BadInput(f"{path}: is a folder, not a study file") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not a text file in UTF-8") from None


def _walk(node: Any, place: Place, marks: dict[Place, tuple[int, int]]) -> None:
    marks[place] = (node.start_mark.line + 1, node.start_mark.column + 1)
    if node.id == "mapping":
        for key, child in node.value:
            name = str(key.value)
            _walk(child, (*place, name), marks)
            if child.start_mark.line > key.start_mark.line:  # a block below its name: the name is where to look
                marks[(*place, name)] = (key.start_mark.line + 1, key.start_mark.column + 1)
    elif node.id == "sequence":
        for index, child in enumerate(node.value):
            _walk(child, (*place, index), marks)
