"""From what a command returned to what the terminal or a script gets: the seam between `cli/` and `report/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import indent
from typing import Any

from rich.console import Console
from rich.table import Table

from paceline.commands import run as runs
from paceline.commands import study as studies
from paceline.commands.report import Reported
from paceline.launch.plan import Plan
from paceline.records.record import Record
from paceline.report.table import Table as ReportTable
from paceline.study.execute import render


def record(console: Console, value: Record) -> None:
    from paceline.report.terminal import print_profile, print_run

    (print_profile if value.profile and value.profile.plain else print_run)(console, value)


def findings(console: Console, reported: Reported) -> None:
    from paceline.report.terminal import print_study

    print_study(console, reported.findings)


def drawn(console: Console, tables: Sequence[ReportTable]) -> None:
    from paceline.report.terminal import print_tables

    print_tables(console, tables)


def plain(reported: Reported) -> dict[str, Any]:
    from paceline.report import plain

    if reported.profile is not None:
        return reported.profile.plain
    return plain.render(reported.findings)


def table(console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    drawn = Table(title=title, title_justify="left", header_style="bold")
    for name in head:
        drawn.add_column(name, overflow="fold")  # a name that is cut cannot be typed
    for row in rows:
        drawn.add_row(*row)
    console.print(drawn, markup=False)


def planned_run(what: runs.Ready) -> Iterator[str]:
    """`paceline run --dry-run`: the exact commands."""
    from paceline.report.words.progress import batch_in_words

    yield what.plan.said
    yield from filter(None, [batch_in_words(what.spec)])
    yield from _commands(what.plan)


def planned_study(what: studies.Ready) -> Iterator[str]:
    """`paceline study --dry-run`: the matrix, and the commands of its first block."""
    plan = what.expanded.plan
    done = sum(len(records) for records in what.done().values())
    yield f"{plan.name}: {len(what.all_planned_runs())} runs, {done} of them done; in {what.folder.path}"
    for cell in plan.cells:
        yield f"  {cell.label}: " + (f"skipped: {cell.skipped}" if cell.skipped else f"{len(cell.keys)} runs")
    for planned in what.all_planned_runs()[: len(what.expanded.specs)]:
        yield f"\n{planned.label}, repeat {planned.repeat + 1}, seed {planned.spec.seed}:"
        yield from (indent(text, "  ") for text in _commands(render(planned.spec, planned.run).plan))


def _commands(plan: Plan) -> Iterator[str]:
    """What would be typed, or the script that would be submitted."""
    for process in (*([plan.before] if plan.before else []), *plan.processes):
        yield f"{process.who}: {process.command()}"
    if plan.script is not None:
        yield plan.script
