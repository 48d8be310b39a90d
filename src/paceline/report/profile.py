"""A profile as tables and sentences: modules, types, operators, and how far the figures can be trusted. It computes shares, no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.records.profile import seen
from paceline.records.record import Record
from paceline.report import format as show
from paceline.report.tables import Column, Table

Row = Mapping[str, Any]
_MOST_MODULES, _MOST_OPERATORS = 40, 15  # what a terminal has room for; the page has all
_NAMES = {"data": "batch assembly"}
_NOISE = 1.05  # a slow-down that two passes on a quiet machine do not show by chance


def _count(row: Row) -> str:
    return f"{row['calls']:,}" if row["calls"] else show.NONE


def _seconds(key: str) -> Callable[[Row], str]:
    return lambda row: show.number(row[key], "s") if row[key] else show.NONE


def _bytes(key: str) -> Callable[[Row], str]:
    """Signed: an operator may give back more than it took."""
    return lambda row: ("-" if row[key] < 0 else "") + show.number(abs(row[key]), "bytes") if row[key] else show.NONE


class Profile:
    """One record's profile, ready to be drawn in any format."""

    def __init__(self, record: Record) -> None:
        found = seen(record)
        assert found is not None, "only a run that was profiled has a profile"
        self.record, self.found = record, found
        self.on_gpu: bool = found["device"] == "cuda"
        self.training: bool = found["pass"] == "training"

    @property
    def title(self) -> str:
        return (
            f"{self.found['pass']} of {Path(str(self.record.spec['task'])).name}: {self.found['num_batches']} batches of "
            f"{self.found['batch']} on {self.found['device']}"
        )

    def sentences(self) -> list[str]:
        clean, slowed = self.found["clean"], float(self.found["slowed"])
        parts = ", ".join(f"{_NAMES.get(name, name)} {show.number(s, 's')}" for name, s in clean["parts"].items())
        cost = f"made it {slowed:.1f}x slower; shares by operator carry that"
        if slowed < _NOISE:  # the first pass met a busier machine than the second
            cost = f"cost less than this machine's own unrest: {slowed:.2f}x the time without it"
        return [
            f"Without a profiler: batch assembly {show.percent(clean['data_share'])}, model {show.percent(clean['model_share'])} "
            f"of {show.number(clean['total_s'], 's')} ({parts}).",
            f"The profiler {cost}.",
        ]

    def tables(self, *, short: bool = False) -> list[Table]:
        """`short`: what fits a terminal."""
        return [self.modules(short=short), self.types(), self.operators(short=short)]

    def modules(self, *, short: bool = False) -> Table:
        rows: list[Row] = self.found["modules"]
        outside = self._outside()
        own = {row["name"]: self._own(row) for row in [*rows, outside]}
        total = sum(own.values())
        shares = {name: spent / total if total else 0.0 for name, spent in own.items()}
        around = "the task's own forward" + (", the loss's gradient, autograd itself" if self.training else "")
        note = (
            "in the model's own order; times include the modules inside, share and memory are a module's own; "
            f"(outside): {around}"
        )
        if short and len(rows) > _MOST_MODULES:
            largest = {row["name"] for row in sorted(rows, key=lambda row: -shares[row["name"]])[:_MOST_MODULES]}
            note = f"the {_MOST_MODULES} of {len(rows)} with most time of their own, {note}"
            rows = [row for row in rows if row["name"] in largest]
        columns: list[tuple[str, Callable[[Row], str]]] = [
            ("calls", _count),
            *self._times(),
            ("share", lambda row: show.percent(shares[row["name"]])),
            ("memory", _bytes("bytes")),
        ]
        return _table("modules", "Modules", note, [*rows, outside], ["name", "type"], columns)

    def _own(self, row: Row) -> float:
        """What shares are shares of: on a GPU the host only queues, so the kernels' time."""
        return row["own_device_s"] if self.on_gpu else row["own_forward_s"] + row["own_backward_s"]

    def _outside(self) -> Row:
        """Of the forward and backward phases, what is no module's: with it the shares add up."""
        outside, device_s = self.found["outside"], self.found["model"]["device_s"]
        device_s -= sum(row["own_device_s"] for row in self.found["modules"])
        return {
            "name": "(outside)", "type": "", "calls": 0, "bytes": 0, "device_s": device_s, "own_device_s": device_s,
            **outside, "own_forward_s": outside["forward_s"], "own_backward_s": outside["backward_s"],
        }  # fmt: skip

    def types(self) -> Table:
        rows = [{"name": name, **row} for name, row in self.found["types"].items()]
        rows.sort(key=lambda row: -row["forward_s"])
        columns = [("calls", _count), *self._times(), ("memory", _bytes("bytes"))]
        return _table("types", "Types", "modules that hold no other, by their class", rows, ["name"], columns)

    def operators(self, *, short: bool = False) -> Table:
        rows: list[Row] = self.found["operators"]
        total, many = sum(row["self_s"] for row in rows), len(rows)
        note = "by their own time, what they call left out; memory is what they allocated less what they freed"
        if short and many > _MOST_OPERATORS:
            note = f"the first {_MOST_OPERATORS} of {many}, {note}"
            rows = rows[:_MOST_OPERATORS]
        columns: list[tuple[str, Callable[[Row], str]]] = [
            ("calls", _count),
            ("own time", _seconds("self_s")),
            ("share", lambda row: show.percent(row["self_s"] / total if total else 0.0)),
            *([("of it backward", _seconds("backward_s"))] if self.training else []),
            ("with what it calls", _seconds("total_s")),
            *([("GPU", _seconds("device_s"))] if self.on_gpu else []),
            ("memory", _bytes("self_bytes")),
        ]
        return _table("operators", "Operators", note, rows, ["name"], columns)

    def _times(self) -> list[tuple[str, Callable[[Row], str]]]:
        backward = [("backward", _seconds("backward_s"))] if self.training else []
        gpu = [("GPU", _seconds("device_s"))] if self.on_gpu else []
        return [("forward", _seconds("forward_s")), *backward, *gpu]

    def files(self) -> list[tuple[str, str]]:
        """Where the rest is, for somebody who wants to see every call."""
        folder = self.record.run_dir.resolve()
        page = folder / "profile.html"
        return [
            *([("page", str(page))] if page.exists() else []),
            ("trace for ui.perfetto.dev", str(folder / self.found["trace"])),
            ("run directory", str(folder)),
        ]


def _table(
    name: str, title: str, note: str, rows: Sequence[Row], words: Sequence[str],
    figures: Sequence[tuple[str, Callable[[Row], str]]],
) -> Table:  # fmt: skip
    heads = {"name": {"modules": "module", "types": "type", "operators": "operator"}[name], "type": "type"}
    columns = (*(Column(heads[word]) for word in words), *(Column(head, "right") for head, _ in figures))
    body = tuple((*(str(row[word]) for word in words), *(told(row) for _, told in figures)) for row in rows)
    return Table(name, title, note, columns, body)
