"""The doctor's whole answer: every row, and whether this machine can train at all. It prints nothing."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any

from paceline.commands.doctor import rows, start
from paceline.commands.doctor.energy import energy
from paceline.commands.doctor.look import look
from paceline.commands.doctor.seen import Row, Seen

HEAD = ["what", "", "found"]


@dataclass(frozen=True, slots=True)
class Examined:
    """`why`: what stands in the way of any training at all; None when nothing does."""

    rows: tuple[Row, ...]
    why: str | None

    def plain(self) -> dict[str, Any]:
        return {"schema": 1, "can_train": self.why is None, "why": self.why, "rows": [row.plain() for row in self.rows]}

    def tables(self, columns: int) -> list[tuple[str, list[list[str]]]]:
        """A table for each group; the fix stands below its finding, where there is room for it."""
        wide = max(len(row.what) for row in self.rows)
        left = max(20, columns - wide - 16)  # six for the state, ten for the lines between and around the three columns
        return [
            (group, [[row.what.ljust(wide), row.state.ljust(6), _cell(row, left)] for row in some])
            for group, some in groupby(self.rows, key=lambda row: row.group)
        ]

    def verdict(self) -> str:
        if self.why is None:
            return "this machine can train; try: paceline run mnist-convnet"
        return f"this machine cannot train: {self.why}"


def _cell(row: Row, columns: int) -> str:
    """Wrapped here: a table would cut off a word (a path) that is wider than its column."""
    lines = [row.found, *([f"-> {row.fix}"] if row.fix else [])]
    return "\n".join(textwrap.fill(line, columns, break_on_hyphens=False) for line in lines)


def examine() -> Examined:
    return judge(look())


def judge(seen: Seen) -> Examined:
    every_row = chain(
        rows.machine(seen), (energy(seen),), rows.gpu(seen), rows.precisions(seen, start.applied(seen)), start.backends(seen),
        start.launchers(seen), start.slurm(seen), rows.network(seen), rows.compilers(seen), rows.box(seen),
    )  # fmt: skip
    return Examined(tuple(every_row), _obstacle(seen))


def _obstacle(seen: Seen) -> str | None:
    """Checks the rules for the simplest possible run, that torch starts, and that fp32 works on some device."""
    if problems := start.refused(seen.host):
        return "; ".join(problems)
    if seen.tried.why:
        return f"torch does not start: {seen.tried.why}"
    tried = [seen.tried.attempt("fp32", device) for device in seen.tried.devices]
    if not any(one and one["ok"] for one in tried):
        return "fp32 works on no device of it"
    return None
