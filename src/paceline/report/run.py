"""The tables and lines of one run as plain text: scores, time in its parts, each rank, memory, energy, cost. `terminal.py` prints them."""

from __future__ import annotations

from typing import Any

from paceline.records.formats import left_out, left_out_in_words
from paceline.records.limits import GROUPS, bound, bound_in_words, late_in_words, stragglers
from paceline.records.record import Record
from paceline.report import format as show
from paceline.report.tables import Column, Table

_MEMORY_PARTS = {
    "parameters": "parameters", "gradients": "gradients", "optimizer": "optimizer state", "activations": "activations", "other": "other",
}  # fmt: skip
_MOST_RANKS = 32  # beyond these a table is no longer read; the record has them all

Lines = list[tuple[str, str]]


def _dict(value: Any) -> dict[str, Any]:
    return value or {}


def scores(record: Record) -> Table:
    """Loss and scores of both splits, and how many samples they stand on."""
    names = [n for n in dict.fromkeys([*record.test, *record.train]) if n not in ("evaluated", "seen", "of")]
    columns = (Column(""), *(Column(name, "right") for name in names), Column("samples", "right"))
    rows: list[tuple[str, ...]] = []
    for split, figures, count in (("test", record.test, "evaluated"), ("train", record.train, "seen")):
        if figures:
            values = (show.number(figures.get(name), "fraction" if name == "accuracy" else "") for name in names)
            rows.append((split, *values, f"{count} {figures.get(count)} of {figures.get('of')}"))
    return Table("scores", "Scores", "over all ranks together", columns, tuple(rows))


def _critical(record: Record) -> str:
    rank = record.time.get("critical_rank")
    rows: list[dict[str, Any]] = record.plain.get("ranks") or []
    return (
        "the only rank"
        if len(rows) == 1
        else "the rank that trained longest"
        if rank is None
        else f"rank {rank}, which trained longest"
    )


def time(record: Record) -> Table:
    """The wall time in its parts, start-up with its own below it; a part that is not told apart is left out."""
    parts, startup = _dict(record.time.get("parts")), _dict(record.time.get("startup"))
    wall = record.time.get("wall_s") or 0.0
    rows: list[tuple[str, str, str]] = []
    for name, seconds in parts.items():
        if not seconds or name == "other":
            continue
        rows.append((name, show.number(seconds, "s"), _percent(seconds, wall)))
        if name == "startup":
            rows += [(f"  {part}", show.number(s, "s"), _percent(s, wall)) for part, s in startup.items() if s]
    columns = (Column("part"), Column("time", "right"), Column("of wall", "right"))
    note = f"{_critical(record)}, from the first process's start to the last one's end"
    rows.append(("wall", show.number(wall, "s"), "100 %"))
    return Table("time", "Time", note, columns, tuple(rows))


def _percent(seconds: float, of: float) -> str:
    return show.percent(seconds / of) if of else ""


def beside_time(record: Record) -> Lines:
    """What is in no row of the table above: the unexplained rest, and communication that cost nothing."""
    other, wall, hidden = (
        record.metric("time.parts.other"),
        record.metric("time.wall_s"),
        record.metric("time.hidden_s"),
    )
    lines: Lines = []
    if other is not None and wall:
        lines.append(
            ("unexplained", f"{show.number(other, 's')}, {round(other / wall * 100, 2) + 0.0:.2f} % of the wall time")
        )
    if hidden:
        lines.append(("hidden communication", f"{show.number(hidden, 's')} while the rank computed; in no part"))
    return lines


def rank_times(record: Record) -> Table:
    """Where the training steps of each rank went; nothing where there is one rank, or parts are not told apart."""
    ranks: list[dict[str, Any]] = record.plain.get("ranks") or []
    told = [rank for rank in ranks if rank.get("time")]
    rows: list[tuple[str, ...]] = []
    for rank in told[:_MOST_RANKS] if len(ranks) > 1 else []:
        seconds = (_total(rank["time"], names) for names in GROUPS.values())
        late = _dict(rank.get("late"))
        last = show.percent(late["last"] / late["of"]) if late.get("of") else show.NONE
        rows.append((
            str(rank["rank"]), str(rank.get("host") or show.NONE), *(show.number(s, "s") for s in seconds), last,
            show.number(late.get("lag_s"), "s"),
        ))  # fmt: skip
    columns = (
        Column("rank", "right"), Column("host"), *(Column(group, "right") for group in GROUPS), Column("came last", "right"),
        Column("lag", "right"),
    )  # fmt: skip
    note = "lag: how long after the others' mean it came, early arrivals taken off"
    if len(told) > _MOST_RANKS:
        note += f"; the first {_MOST_RANKS} of {len(told)} ranks, the record has all"
    return Table("rank-times", "Training time by rank", note, columns, tuple(rows))


def _total(parts: dict[str, float | None], names: tuple[str, ...]) -> float | None:
    told = [seconds for name in names if (seconds := parts.get(name)) is not None]
    return sum(told) if told else None


def held_back(record: Record) -> list[str]:
    """One sentence for what the largest group of a training step is, one for each rank the others waited for."""
    found = bound(record)
    said = [bound_in_words(found.group, show.percent(found.share))] if found else []
    said += [
        late_in_words(rank, last=show.percent(rank.last), step=show.number(rank.step_s, "s"))
        for rank in stragglers(record)
    ]
    return [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in said]


def memory(record: Record) -> Table:
    """What is in use at the peak, by the allocator; the parts add up to it."""
    found = _dict(record.plain.get("memory"))
    parts, peak = _dict(found.get("parts")), found.get("peak_bytes")
    rows: list[tuple[str, ...]] = []
    if peak:
        named = [(title, parts.get(name)) for name, title in _MEMORY_PARTS.items()]
        rows = [
            (title, show.number(size, "bytes"), show.percent(size / peak)) for title, size in named if size is not None
        ]
        rows.append(("peak of a training step", show.number(peak, "bytes"), "100 %"))
        if found.get("steady_bytes") is not None:
            rows.append(
                ("between steps", show.number(found["steady_bytes"], "bytes"), _percent(found["steady_bytes"], peak))
            )
        if found.get("evaluation_peak_bytes"):
            size = found["evaluation_peak_bytes"]
            rows.append(("peak of evaluation", show.number(size, "bytes"), _percent(size, peak)))
    when = f" in {found['peak_in']}" if found.get("peak_in") else ""
    who = f"{found['allocator']}'s own count" if found.get("allocator") else "the allocator's own count"
    note = f"{who}, the rank that needs most, at the peak{when}"
    columns = (Column("part"), Column("size", "right"), Column("of peak", "right"))
    return Table("memory", "Memory", note, columns, tuple(rows))


def beside_memory(record: Record) -> Lines:
    """The process as a whole, what a device keeps reserved, and why the allocator could not be asked."""
    found = _dict(record.plain.get("memory"))
    data = _dict(found.get("sizes")).get("data")
    lines: Lines = []
    other = _dict(found.get("parts")).get("other")
    if data and found.get("data_shared"):
        lines.append(("beside these", f"the data set, {show.number(data, 'bytes')}, once for all ranks of a machine"))
    elif data and other and data <= other:  # more: it is a file mapped into memory, or it lies in another one
        lines.append(("in other", f"the data set, {show.number(data, 'bytes')}"))
    if found.get("rss_bytes"):
        steady = (
            f", {show.number(found['rss_steady_bytes'], 'bytes')} at the end" if found.get("rss_steady_bytes") else ""
        )
        lines.append(("process memory", f"{show.number(found['rss_bytes'], 'bytes')} at most{steady}, torch included"))
    if found.get("reserved_bytes"):
        lines.append(("device memory reserved", show.number(found["reserved_bytes"], "bytes")))
    if found.get("why"):
        lines.append(("memory by part", found["why"] if found.get("peak_bytes") else f"not measured: {found['why']}"))
    return lines


def facts(record: Record) -> Lines:
    """Speed, energy and money, and where everything lies; what was not measured says why."""
    timed = record.time
    steady = _dict(record.plain.get("steady"))
    throughput = record.plain.get("throughput")
    rows: Lines = []
    if timed.get("training_s") is not None:
        rows.append(("training time", show.duration(timed["training_s"])))
    if "to_target_s" in timed:
        reached = timed["to_target_s"]
        rows.append(("time to target", show.duration(reached) if reached is not None else "not reached"))
    if throughput:
        warm = "" if steady.get("steady", True) else " (with warm-up: there was no step beyond it)"
        rows.append(("throughput", f"{show.number(throughput, 'samples/s')}{warm}"))
    rows += _graph(_dict(record.plain.get("graph")))
    num, of = left_out(record)
    if num:
        rows.append(("fp16", left_out_in_words(num, of)))
    rows += _energy(_dict(record.plain.get("energy"))) + _cost(_dict(record.plain.get("cost")))
    for name, key in (("weights", "weights"), ("run directory", "run_dir")):
        if record.plain.get(key):
            rows.append((name, str(record.plain[key])))
    return rows


def _graph(found: dict[str, Any]) -> Lines:
    """What was made into graphs, what that took, and what could not be held in them."""
    if not found:
        return []
    named = [(found["graphs"], "graph"), (found["breaks"], "break"), (found["recompiles"], "recompilation")]
    counts = ", ".join(f"{num} {word}{'' if num == 1 else 's'}" for num, word in named)
    eager = f"; {found['eager_steps']} steps without it" if found["eager_steps"] else ""
    reasons = [*found["break_reasons"], *found["recompile_reasons"]]
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return [(f"graph of the {found['of']}", f"{show.number(found['compile_s'], 's')} to make: {counts}{why}{eager}")]


def _energy(found: dict[str, Any]) -> Lines:
    if not found:
        return []
    if found.get("joules") is None:
        return [("energy", f"not measured: {found.get('why') or 'no reason recorded'}")]
    each = (
        f", {show.number(found['joules_per_sample'])} J a sample" if found.get("joules_per_sample") is not None else ""
    )
    sources = ", ".join(map(str, found.get("sources") or []))
    return [("energy", f"{show.number(found['joules'])} J{each}" + (f" ({sources})" if sources else ""))]


def _cost(found: dict[str, Any]) -> Lines:
    if found.get("total") is None:
        return []
    return [("cost", f"{found['total']:.3g} ({found['device_hours']:.3g} device hours at {found['price']:g} an hour)")]
