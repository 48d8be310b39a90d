"""Findings and records on the terminal, through rich. The only file of this room that prints; user text is never read as markup."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from paceline.records.record import Record
from paceline.report import run, tables
from paceline.report.profile import ProfileTables
from paceline.report.words import run as words
from paceline.report.words.spoken import SpokenStudy

_STYLES = {
    "faster": "green", "better": "green", "confirmed": "green", "completed": "green",
    "slower": "red", "worse": "red", "refuted": "red", "failed": "red",
    "too few runs": "yellow", "not tested here": "yellow", "skipped": "yellow", "partial": "yellow",
}  # fmt: skip


def _text(value: str) -> Text:
    return Text(value, style=_STYLES.get(value, ""))


def _drawn(table: tables.Table) -> RichTable:
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for column in table.columns:
        drawn.add_column(Text(column.title), justify=column.align, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_text(value.replace(" [", "\n[") if table.name == "cells" else value) for value in row))
    return drawn


def _section(console: Console, table: tables.Table) -> None:
    console.print()
    console.print(Text(table.title, style="bold"))
    if table.note:
        console.print(Text(table.note, style="dim"))
    console.print(_drawn(table))


def print_tables(console: Console, drawn: Sequence[tables.Table]) -> None:
    for table in drawn:
        _section(console, table)


def print_study(console: Console, study: SpokenStudy) -> None:
    """The answer first, then the tables, then where the figures come from."""
    console.print(Text(study.name, style="bold"), Text(study.about, style="dim"))
    console.print(Padding(Text(study.headline, style="bold cyan"), (1, 0, 0, 2)))
    short = tables.abridged(study)
    left = len(study.comparisons) - len(short.comparisons)
    for table in tables.all_tables(short):
        if table.name == "missing-parts":  # the sentences above it have what matters of it
            continue
        _section(console, table)
        if table.name == "failures":
            for name, path in tables.first_logs(study):
                _path(console, name, path)
        if left and table.name == "comparisons":
            console.print(Text(f"{left} more, none with a difference shown, are in the report.", style="dim"))
    if study.notes:
        console.print()
    for note in study.notes:
        console.print(Text(f"- {note}"))
    console.print()
    for name, value in tables.provenance(study):
        console.print(Text(f"{name}: {value}", style="dim"))


def _lines(console: Console, lines: Sequence[tuple[str, str]]) -> None:
    for name, value in lines:
        console.print(Text.assemble((f"{name}: ", "dim"), value))


def _path(console: Console, name: str, path: str) -> None:
    """On one line: a path that is broken in two cannot be copied."""
    console.print(Text.assemble((f"{name}: ", "dim"), path), soft_wrap=True)


def print_run(console: Console, record: Record) -> None:
    """One run: how it ended, what it scored, what each rank did, where time and memory went, what held it back."""
    spec = record.spec
    console.print(
        Text.assemble(_text(record.outcome), f"  {spec.get('task')} on {spec.get('on')}, seed {spec.get('seed')}")
    )
    if record.why:
        console.print(Text(f"{record.kind}: {record.why}", style="red" if record.outcome == "failed" else "yellow"))
    if record.log_path is not None:
        _path(console, "log", str(record.log_path))
    if record.test or record.train:
        _section(console, run.scores(record))
    if (probe := words.probe(record)) is not None:
        console.print(Text.assemble(("probe: ", "dim"), probe))
    for warned in record.warnings:
        console.print(Text(f"warning ({warned.kind}): {warned.text}", style="yellow"))
    ranks = tables.ranks([("", record)])
    if len(ranks.rows) > 1:
        _section(console, tables.without_first(ranks, title="Ranks"))
    if record.time and record.time.parts:
        _section(console, run.time(record))
        _lines(console, words.time_notes(record))
    for table in (run.rank_times(record), run.memory(record)):
        if table.rows:
            _section(console, table)
    _lines(console, words.memory_notes(record))
    console.print()
    for sentence in words.held_back(record):
        console.print(Text(sentence, style="bold"))
    _lines(console, words.facts(record))


def print_profile(console: Console, record: Record) -> None:
    """What a profiler saw in one run: modules, types and operators, and how much of it to believe."""
    profile = ProfileTables(record)
    console.print(Text.assemble(_text(record.outcome), f"  profile, {profile.title}"))
    for table in profile.tables(short=True):
        _section(console, table)
    console.print()
    for sentence in profile.sentences():
        console.print(Text(sentence))
    console.print()
    for name, path in profile.files():
        _path(console, name, path)
