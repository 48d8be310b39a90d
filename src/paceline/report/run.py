"""The tables of one run as plain text: scores, time in its parts, each rank, memory. `terminal.py` prints them."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.records.limits import GROUPS
from paceline.records.record import Record
from paceline.report.table import Column, Table
from paceline.report.words import numbers as show

_MEMORY_PARTS = {
    "parameters": "parameters", "gradients": "gradients", "optimizer": "optimizer state", "activations": "activations",
    "data": "data set", "other": "other",
}  # fmt: skip
_MOST_RANKS = 32  # beyond these a table is no longer read; the record has them all


def scores(record: Record) -> Table:
    """Loss and scores of both splits, and how many samples they stand on."""
    names = list(dict.fromkeys([*record.test.names, *record.train.names]))
    columns = (Column(""), *(Column(name, "right") for name in names), Column("samples", "right"))
    rows: list[tuple[str, ...]] = []
    for split, figures, count in (("test", record.test, "evaluated"), ("train", record.train, "seen")):
        if figures:
            values = (show.number(figures.get(name), "fraction" if name == "accuracy" else "") for name in names)
            rows.append((split, *values, f"{count} {figures.get(count)} of {figures.of}"))
    return Table("scores", "Scores", "over all ranks together", columns, tuple(rows))


def _critical(record: Record) -> str:
    rank = record.time.critical_rank if record.time else None
    if len(record.ranks) == 1:
        return "the only rank"
    return "the rank that trained longest" if rank is None else f"rank {rank}, which trained longest"


def time(record: Record) -> Table:
    """The wall time in its parts, start-up with its own below it; a part that is not told apart is left out."""
    assert record.time is not None
    startup, wall = record.time.startup or {}, record.time.wall_s or 0.0
    rows: list[tuple[str, str, str]] = []
    for name, seconds in (record.time.parts or {}).items():
        if not seconds or name == "other":
            continue
        rows.append((name, show.number(seconds, "s"), _percent(seconds, wall)))
        if name == "startup":
            rows += [(f"  {part}", show.number(s, "s"), _percent(s, wall)) for part, s in startup.items() if s]
    columns = (Column("part"), Column("time", "right"), Column("of wall", "right"))
    note = f"{_critical(record)}, from the first process's start to the last one's end"
    rows.append(("wall", show.number(wall, "s"), "100 %"))
    return Table("time", "Time", note, columns, tuple(rows))


def _percent(part: float, of: float) -> str:
    return show.percent(part / of) if of else ""


def rank_times(record: Record) -> Table:
    """Where the training steps of each rank went; nothing where there is one rank, or parts are not told apart."""
    told = [(rank, rank.time) for rank in record.ranks if rank.time]
    rows: list[tuple[str, ...]] = []
    for rank, parts in told[:_MOST_RANKS] if len(record.ranks) > 1 else []:
        seconds = (_total(parts, names) for names in GROUPS.values())
        last = show.percent(rank.late.last / rank.late.of) if rank.late and rank.late.of else show.NONE
        lag = show.number(rank.late.lag_s if rank.late else None, "s")
        rows.append((str(rank.rank), rank.host or show.NONE, *(show.number(s, "s") for s in seconds), last, lag))
    columns = (
        Column("rank", "right"), Column("host"), *(Column(group, "right") for group in GROUPS), Column("came last", "right"),
        Column("lag", "right"),
    )  # fmt: skip
    note = "lag: how long after the others' mean it came, early arrivals taken off"
    if len(told) > _MOST_RANKS:
        note += f"; the first {_MOST_RANKS} of {len(told)} ranks, the record has all"
    return Table("rank-times", "Training time by rank", note, columns, tuple(rows))


def _total(parts: Mapping[str, float | None], names: tuple[str, ...]) -> float | None:
    told = [seconds for name in names if (seconds := parts.get(name)) is not None]
    return sum(told) if told else None


def memory(record: Record) -> Table:
    """What is in use at the peak, by the allocator; the parts add up to it."""
    used = record.memory
    rows: list[tuple[str, ...]] = []
    if used and used.peak_bytes:
        sizes: list[tuple[str, float | None]] = [
            (title, (used.parts or {}).get(n)) for n, title in _MEMORY_PARTS.items()
        ]
        sizes += [("peak of a training step", used.peak_bytes), ("without the data set", used.step_bytes)]
        sizes += [("between steps", used.steady_bytes)]
        sizes += [("peak of evaluation", used.evaluation_peak_bytes or None)]
        named = [(title, size) for title, size in sizes if size is not None]
        rows = [(title, show.number(size, "bytes"), _percent(size, used.peak_bytes)) for title, size in named]
    when = f" in {used.peak_in}" if used and used.peak_in else ""
    who = f"{used.allocator}'s own count" if used and used.allocator else "the allocator's own count"
    note = f"{who}, the rank that needs most, at the peak{when}"
    columns = (Column("part"), Column("size", "right"), Column("of peak", "right"))
    return Table("memory", "Memory", note, columns, tuple(rows))
