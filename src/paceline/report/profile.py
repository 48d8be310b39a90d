"""A profile as tables: modules, types, operators. It computes shares, no more; what is said of it is in `words/profile.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.records.profile import ModuleFigures, ModuleRow, OperatorRow
from paceline.records.record import Record
from paceline.report.table import Column, Table
from paceline.report.words import numbers as show
from paceline.report.words.profile import sentences

_MOST_MODULES, _MOST_OPERATORS = 40, 15  # what a terminal has room for; the page has all


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of a table: its names, and a text for each figure."""

    names: tuple[str, ...]
    figures: tuple[str, ...]


def _count(calls: int) -> str:
    return f"{calls:,}" if calls else show.NONE


def _seconds(seconds: float) -> str:
    return show.number(seconds, "s") if seconds else show.NONE


def _bytes(size: int) -> str:
    """Signed: an operator may give back more than it took."""
    return ("-" if size < 0 else "") + show.number(abs(size), "bytes") if size else show.NONE


class ProfileTables:
    """One record's profile, ready to be drawn in any format."""

    def __init__(self, record: Record) -> None:
        assert record.profile is not None, "only a run that was profiled has a profile"
        self.record, self.profile = record, record.profile
        self.on_gpu: bool = self.profile.device == "cuda"
        self.training: bool = self.profile.kind == "training"

    @property
    def title(self) -> str:
        profile = self.profile
        return (
            f"{profile.kind} of {Path(str(self.record.spec['task'])).name}: {profile.num_batches} batches of "
            f"{profile.batch} on {profile.device}"
        )

    def sentences(self) -> list[str]:
        return sentences(self.profile)

    def tables(self, *, short: bool = False) -> list[Table]:
        """`short`: what fits a terminal."""
        return [self.modules(short=short), self.types(), self.operators(short=short)]

    def modules(self, *, short: bool = False) -> Table:
        rows = list(self.profile.modules)
        outside = self._outside()
        own = {row.name: self._own(row) for row in [*rows, outside]}
        total = sum(own.values())
        shares = {name: spent / total if total else 0.0 for name, spent in own.items()}
        around = "the task's own forward" + (", the loss's gradient, autograd itself" if self.training else "")
        note = (
            "in the model's own order; times include the modules inside, share and memory are a module's own; "
            f"(outside): {around}"
        )
        if short and len(rows) > _MOST_MODULES:
            largest = {row.name for row in sorted(rows, key=lambda row: -shares[row.name])[:_MOST_MODULES]}
            note = f"the {_MOST_MODULES} of {len(rows)} with most time of their own, {note}"
            rows = [row for row in rows if row.name in largest]
        columns: list[tuple[str, Callable[[ModuleRow], str]]] = [
            ("calls", lambda row: _count(row.calls)),
            *self._times(),
            ("share", lambda row: show.percent(shares[row.name])),
            ("memory", lambda row: _bytes(row.bytes)),
        ]
        lines = [_Row((row.name, row.type), tuple(figure(row) for _, figure in columns)) for row in [*rows, outside]]
        return _table("modules", note, ["module", "type"], [head for head, _ in columns], lines)

    def _own(self, row: ModuleRow) -> float:
        """What shares are shares of: on a GPU the host only queues, so the kernels' time."""
        return row.own_device_s if self.on_gpu else row.own_forward_s + row.own_backward_s

    def _outside(self) -> ModuleRow:
        """Of the forward and backward phases, what is no module's: with it the shares add up."""
        outside = self.profile.outside
        device_s = self.profile.model.device_s - sum(row.own_device_s for row in self.profile.modules)
        return ModuleRow(
            name="(outside)", device_s=device_s, own_device_s=device_s, forward_s=outside.forward_s, backward_s=outside.backward_s,
            own_forward_s=outside.forward_s, own_backward_s=outside.backward_s,
        )  # fmt: skip

    def types(self) -> Table:
        rows = sorted(self.profile.types.items(), key=lambda item: -item[1].forward_s)
        columns: list[tuple[str, Callable[[ModuleFigures], str]]] = [
            ("calls", lambda row: _count(row.calls)),
            *self._times(),
            ("memory", lambda row: _bytes(row.bytes)),
        ]
        lines = [_Row((name,), tuple(figure(row) for _, figure in columns)) for name, row in rows]
        note = "modules that hold no other, by their class"
        return _table("types", note, ["type"], [head for head, _ in columns], lines)

    def operators(self, *, short: bool = False) -> Table:
        rows = self.profile.operators
        total, many = sum(row.self_s for row in rows), len(rows)
        note = "by their own time, what they call left out; memory is what they allocated less what they freed"
        if short and many > _MOST_OPERATORS:
            note = f"the first {_MOST_OPERATORS} of {many}, {note}"
            rows = rows[:_MOST_OPERATORS]
        named: tuple[tuple[str, Callable[[OperatorRow], str], bool], ...] = (
            ("calls", lambda row: _count(row.calls), True),
            ("own time", lambda row: _seconds(row.self_s), True),
            ("share", lambda row: show.percent(row.self_s / total if total else 0.0), True),
            ("of it backward", lambda row: _seconds(row.backward_s), self.training),
            ("with what it calls", lambda row: _seconds(row.total_s), True),
            ("GPU", lambda row: _seconds(row.device_s), self.on_gpu),
            ("memory", lambda row: _bytes(row.self_bytes), True),
        )
        columns = [(head, figure) for head, figure, shown in named if shown]
        lines = [_Row((row.name,), tuple(figure(row) for _, figure in columns)) for row in rows]
        return _table("operators", note, ["operator"], [head for head, _ in columns], lines)

    def _times(self) -> list[tuple[str, Callable[[ModuleFigures], str]]]:
        named: tuple[tuple[str, Callable[[ModuleFigures], str], bool], ...] = (
            ("forward", lambda row: _seconds(row.forward_s), True),
            ("backward", lambda row: _seconds(row.backward_s), self.training),
            ("GPU", lambda row: _seconds(row.device_s), self.on_gpu),
        )
        return [(head, figure) for head, figure, shown in named if shown]

    def files(self) -> list[tuple[str, str]]:
        """Where the rest is, for somebody who wants to see every call."""
        folder = self.record.run_dir.resolve()
        page = folder / "profile.html"
        return [
            *([("page", str(page))] if page.exists() else []),
            ("trace for ui.perfetto.dev", str(folder / self.profile.trace)),
            ("run directory", str(folder)),
        ]


def _table(name: str, note: str, names: Sequence[str], heads: Sequence[str], rows: Sequence[_Row]) -> Table:
    columns = (*(Column(head) for head in names), *(Column(head, "right") for head in heads))
    return Table(name, name.capitalize(), note, columns, tuple((*row.names, *row.figures) for row in rows))
