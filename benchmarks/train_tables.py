"""The result of benchmarks/train.py as a table, for a terminal and for a Markdown page. It measures nothing."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

HEAD = (
    "task",
    "plain, samples/s",
    "accelerate",
    "lightning",
    "Paceline",
    "Paceline, samples/s",
    "accuracy, plain / Paceline",
    "compile, paid back after",
)


def rows(result: dict[str, Any]) -> list[list[str]]:
    return [
        [
            task,
            _rate(found["plain"]),
            *(_ratio(found[name]) for name in ("accelerate", "lightning", "paceline")),
            _rate(found["paceline"]),
            f"{_accuracy(found['plain'])} / {_accuracy(found['paceline'])}",
            _compiled(found["paceline"]),
        ]
        for task, found in result["tasks"].items()
    ]


def notes(result: dict[str, Any]) -> str:
    """Where the figures come from."""
    seen, versions = result["hardware"], result["versions"]
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    threads = "1 thread" if result["threads"] == 1 else f"{result['threads']} threads"
    device = f"{seen['gpu']}, " if seen["gpu"] else ""
    used = "; ".join(f"{task} {' '.join(found['paceline']['settings'])}" for task, found in result["tasks"].items())
    return (
        f"Ratios to plain, geometric means of {_repeats(result)} with 95 % intervals; batch {result['batch']}, {threads}. "
        f"{device}{seen['cpu']}, {seen['cores']} cores, {seen['system']}; {named}, Python {result['python']}. Paceline's settings: {used}."
    )


def _repeats(result: dict[str, Any]) -> str:
    """Of every task as many as were made of the shortest, or more where it was interrupted."""
    return (
        f"{result['n']} or more interleaved repeats (interrupted)"
        if result.get("interrupted")
        else f"{result['n']} interleaved repeats"
    )


def markdown(result: dict[str, Any]) -> str:
    lines = [_line(HEAD), "|" + "---|" * len(HEAD), *map(_line, rows(result))]
    return "\n".join([*lines, "", notes(result)])


def terminal(result: dict[str, Any]) -> None:
    table = Table(*HEAD)
    for row in rows(result):
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:  # in a file there is room
        console.width = 150
    console.print(table)
    console.print(notes(result))


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _absent(row: dict[str, Any]) -> str | None:
    return next((word for word in ("skipped", "failed") if word in row), None)


def _rate(row: dict[str, Any]) -> str:
    return _absent(row) or f"{row['rate']:,.0f}"


def _accuracy(row: dict[str, Any]) -> str:
    return _absent(row) or f"{row['accuracy']:.2%}".replace("%", " %")


def _ratio(row: dict[str, Any]) -> str:
    if word := _absent(row):
        return word
    if "ratio" not in row:
        return "-"
    interval = f" (n = {row['n']})" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return f"{row['ratio']:.2f}x{interval}"


def _compiled(row: dict[str, Any]) -> str:
    if row.get("compile_s") is None:
        return "-"
    steps = row["breakeven_steps"]
    return f"{row['compile_s']:.1f} s, {'never' if steps is None else f'{steps:,.0f} steps'}"
