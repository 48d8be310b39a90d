"""Findings and records on the terminal, through rich. The only file of this room that prints; user text is never read as markup."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from paceline.records.findings import StudyFindings
from paceline.records.record import Record
from paceline.report import format as show
from paceline.report import tables

_STYLES = {
    "faster": "green", "better": "green", "confirmed": "green", "completed": "green",
    "slower": "red", "worse": "red", "refuted": "red", "failed": "red",
    "too few runs": "yellow", "skipped": "yellow", "partial": "yellow",
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


def print_study(console: Console, found: StudyFindings) -> None:
    """The answer first, then the tables, then where the figures come from."""
    console.print(Text(found.name, style="bold"), Text(found.about, style="dim"))
    console.print(Padding(Text(found.headline, style="bold cyan"), (1, 0, 0, 2)))
    short = tables.told(found)
    left = len(found.comparisons) - len(short.comparisons)
    for table in tables.all_tables(short):
        _section(console, table)
        if left and table.name == "comparisons":
            console.print(Text(f"{left} more, none with a difference shown, are in the report.", style="dim"))
    if found.notes:
        console.print()
    for note in found.notes:
        console.print(Text(f"- {note}"))
    console.print()
    for name, value in tables.provenance(found):
        console.print(Text(f"{name}: {value}", style="dim"))


def _scores(record: Record) -> tables.Table:
    """Loss and scores of both splits, and how many samples they stand on."""
    names = [n for n in dict.fromkeys([*record.test, *record.train]) if n not in ("evaluated", "seen", "of")]
    columns = (tables.Column(""), *(tables.Column(name, "right") for name in names), tables.Column("samples", "right"))
    rows: list[tuple[str, ...]] = []
    for split, figures, count in (("test", record.test, "evaluated"), ("train", record.train, "seen")):
        if figures:
            values = (show.number(figures.get(name), "fraction" if name == "accuracy" else "") for name in names)
            rows.append((split, *values, f"{count} {figures.get(count)} of {figures.get('of')}"))
    return tables.Table("scores", "Scores", "over all ranks together", columns, tuple(rows))


def _time(record: Record) -> tables.Table:
    """The wall time in its parts; a part that could not be told apart is left out."""
    parts: dict[str, float | None] = record.time.get("parts") or {}
    wall = record.time.get("wall_s") or 0.0
    rows = [(name, show.number(s, "s"), show.percent(s / wall) if wall else "") for name, s in parts.items() if s]
    columns = (tables.Column("part"), tables.Column("time", "right"), tables.Column("of wall", "right"))
    note = "slowest rank, from the first process's start to the last one's end; `other` is unexplained"
    return tables.Table("time", "Time", note, columns, (*rows, ("wall", show.number(wall, "s"), "")))


def _facts(record: Record) -> list[tuple[str, str]]:
    time = record.time
    memory: dict[str, Any] = record.plain.get("memory") or {}
    steady: dict[str, Any] = record.plain.get("steady") or {}
    rows = [
        ("training time", show.duration(time.get("training_s")) if time.get("training_s") is not None else ""),
        (
            "throughput",
            show.number(record.plain.get("throughput"), "samples/s") if record.plain.get("throughput") else "",
        ),
        ("memory", f"{show.number(memory['rss_bytes'], 'bytes')} a rank at most" if memory.get("rss_bytes") else ""),
        (
            "device memory",
            f"{show.number(memory['peak_bytes'], 'bytes')} at its peak" if memory.get("peak_bytes") else "",
        ),
        ("weights", str(record.plain.get("weights") or "")),
        ("run directory", str(record.plain.get("run_dir") or "")),
    ]
    if "to_target_s" in time:
        reached = time["to_target_s"]
        rows.insert(1, ("time to target", show.duration(reached) if reached is not None else "not reached"))
    if steady and not steady.get("steady", True):
        rows.append(("note", "throughput includes warm-up: there was no step beyond it"))
    return [(name, value) for name, value in rows if value]


def print_run(console: Console, record: Record) -> None:
    """One run: how it ended, what it scored, what each rank did, where the time went."""
    spec = record.spec
    console.print(
        Text.assemble(_text(record.outcome), f"  {spec.get('task')} on {spec.get('on')}, seed {spec.get('seed')}")
    )
    if record.why:
        console.print(Text(f"{record.kind}: {record.why}", style="red" if record.outcome == "failed" else "yellow"))
    if record.test or record.train:
        _section(console, _scores(record))
    ranks = tables.ranks([("", record)])
    if len(ranks.rows) > 1:
        _section(console, tables.without_first(ranks, title="Ranks"))
    if record.time.get("parts"):
        _section(console, _time(record))
    console.print()
    for name, value in _facts(record):
        console.print(Text.assemble((f"{name}: ", "dim"), value))
