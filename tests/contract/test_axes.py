"""Every axis has one table that says what its values can do: each row can be chosen and is listed, each field is read, and nothing else
tells the values apart by their names."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paceline.commands import listing
from paceline.spec.axes.graphs import GRAPHS
from paceline.spec.axes.launchers import LAUNCHERS
from paceline.spec.axes.optimizers import OPTIMIZERS
from paceline.spec.axes.schedules import SCHEDULES
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.settings import Settings
from paceline.spec.tasks import BUILTIN

SOURCE = Path(__file__).parents[2] / "src" / "paceline"
# setting -> its table, and the file that holds it
AXES: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "launcher": (LAUNCHERS, "spec/axes/launchers.py"),
    "sharding": (SHARDINGS, "spec/axes/shardings.py"),
    "optimizer": (OPTIMIZERS, "spec/axes/optimizers.py"),
    "schedule": (SCHEDULES, "spec/axes/schedules.py"),
    "graph": (GRAPHS, "spec/axes/graphs.py"),
    "task": (BUILTIN, "spec/tasks.py"),
}
ROWS = [(axis, name) for axis, (table, _) in AXES.items() for name in table]


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text())


@pytest.mark.parametrize(("axis", "name"), ROWS)
def test_each_row_can_be_chosen_and_is_listed(axis: str, name: str) -> None:
    table, _ = AXES[axis]
    assert table[name].name == name
    if axis == "task":
        assert name in [row[0] for row in listing.tasks()[1]]
        return
    assert getattr(Settings.model_validate({axis: name}), axis) == name
    values = next(row[1] for row in listing.settings()[1] if row[0] == axis)
    assert name in values.split(", ")
    if axis == "launcher":
        assert [name, table[name].about] in listing.launchers()[1]


@pytest.mark.parametrize("axis", [axis for axis in AXES if axis != "task"])
def test_a_setting_takes_the_rows_of_its_table_and_nothing_else(axis: str) -> None:
    enum = Settings.model_json_schema()["properties"][axis]["enum"]
    assert [name for name in enum if name != "auto"] == list(AXES[axis][0])


@pytest.mark.parametrize("axis", AXES)
def test_each_field_is_read(axis: str) -> None:
    """In the table's own file, or in one that imports it: a field that nobody reads says nothing."""
    table, home = AXES[axis]
    module = "paceline." + home.removesuffix(".py").replace("/", ".")
    read: set[str] = set()
    for path, tree in trees():
        if path == home or _imports(tree, module):
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    fields = {field.name for field in dataclasses.fields(next(iter(table.values())))}
    assert not fields - read


def _imports(tree: ast.Module, module: str) -> bool:
    package, _, name = module.rpartition(".")
    return any(
        isinstance(node, ast.ImportFrom)
        and (node.module == module or (node.module == package and name in [alias.name for alias in node.names]))
        for node in ast.walk(tree)
    )


def test_nothing_compares_the_names() -> None:
    """`spec.sharding == "tensor"` is a question about a capability: the table answers it."""
    compared: list[str] = []
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and _of_an_axis(node) and _with_a_name(node):
                compared.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    assert not compared, "\n".join(compared)


def _of_an_axis(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    return any(isinstance(side, ast.Attribute) and side.attr in {*AXES, "inner"} for side in sides)


def _with_a_name(node: ast.Compare) -> bool:
    names = {name for axis, name in ROWS}
    return any(
        isinstance(leaf, ast.Constant) and leaf.value in names
        for side in (node.left, *node.comparators)
        for leaf in ast.walk(side)
    )


def test_nothing_but_its_own_file_and_its_row_names_a_built_in_task() -> None:
    named: list[str] = []
    for path, tree in trees():
        if path == "spec/tasks.py" or path.startswith("worker/tasks/"):
            continue
        named += [
            f"{path}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and node.value in BUILTIN
        ]
    assert not named, "\n".join(named)
