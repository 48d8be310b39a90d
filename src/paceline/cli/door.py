"""The door to the user's terminal: stdout for results, stderr for progress and errors. It decides nothing."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout and nothing else.")]


def console(*, stderr: bool = False) -> Any:
    from rich.console import Console

    # A log or a pipe has no width of its own: wide enough that no table is cut, unless COLUMNS says otherwise.
    piped = not (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, width=shutil.get_terminal_size((140, 24)).columns if piped else None)


def say(text: str) -> None:
    print(text)


def say_all(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, allow_nan=False))


def fail(text: str) -> None:
    print(f"paceline: {text}", file=sys.stderr)
