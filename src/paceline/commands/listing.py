"""`paceline list`: what there is to choose from, a line each. Rows of text; it prints nothing and imports nothing heavy."""

from __future__ import annotations

from typing import Any

from paceline.spec.axes.launchers import LAUNCHERS
from paceline.spec.settings import Settings
from paceline.spec.tasks import BUILTIN
from paceline.spec.values import STOP

Rows = tuple[list[str], list[list[str]]]  # head, rows

_WORDS = {"integer": "whole number", "number": "number", "boolean": "true, false", "string": "text"}
_WRITTEN = {r"^\d+x\d+$": "MACHINESxPROCESSES", STOP: "target, plateau:N"}


def _values(schema: dict[str, Any]) -> str:
    """The valid values of a setting, from its JSON schema, as a person would say them."""
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if "anyOf" in schema:
        return " or ".join(_values(part) for part in schema["anyOf"] if part.get("type") != "null")
    if (words := _WRITTEN.get(schema.get("pattern", ""))) is not None:
        return words
    bounds = [
        f"{sign} {schema[key]:g}"
        for key, sign in (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))
        if key in schema and abs(schema[key]) < 2**31
    ]
    return " ".join([_WORDS.get(schema.get("type", ""), "text"), *bounds])


def settings() -> Rows:
    properties = Settings.model_json_schema()["properties"]
    rows = [
        [
            name,
            _values(schema),
            "" if schema.get("default") is None else str(schema["default"]).lower(),
            schema["description"],
        ]
        for name, schema in properties.items()
    ]
    return ["setting", "values", "default", "what it does"], rows


def tasks() -> Rows:
    rows: list[list[str]] = []
    for entry in BUILTIN.values():
        params = ", ".join(f"{param.name}={param.default} ({param.about})" for param in entry.params)
        defaults = " ".join(f"{name}={value}" for name, value in entry.defaults.items())
        rows.append([entry.name, entry.about, params.replace("False", "false").replace("True", "true"), defaults])
    return ["task", "what it is", "its parameters", "its defaults"], rows


def studies() -> Rows:
    from paceline.commands.study import shipped

    rows = [
        [file.study, file.about, " ".join(f"{k}={','.join(map(str, v))}" for k, v in file.sweep.items()) or f"{len(file.cells)} cells",
         str(file.repeats)]
        for file in shipped().values()
    ]  # fmt: skip
    return ["study", "what it asks", "cells", "repeats"], rows


def launchers() -> Rows:
    return ["launcher", "what it is"], [[row.name, row.about] for row in LAUNCHERS.values()]


def schema() -> dict[str, Any]:
    """The JSON schema of study files."""
    from paceline.spec.study import schema

    return schema()
