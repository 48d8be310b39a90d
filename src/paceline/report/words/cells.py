"""Why runs of a cell did not complete, each reason once, in words."""

from __future__ import annotations

from paceline.records.findings import CellFinding


def reasons(cell: CellFinding) -> tuple[str, ...]:
    if cell.skipped:
        return (cell.skipped,)
    ended = [
        f"{failure.num} of {cell.planned} runs: {failure.kind or 'failed'}: {failure.why or 'no reason recorded'}"
        for failure in cell.failures
    ]
    return (*ended, f"{cell.to_make} of {cell.planned} runs still to be made") if cell.to_make else tuple(ended)
