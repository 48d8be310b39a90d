"""The table about two swept settings: what each is worth, and whether that depends on the other, in words."""

from __future__ import annotations

from paceline.report.table import Column, Table
from paceline.report.words.spoken import SpokenStudy


def grid(study: SpokenStudy) -> Table:
    found = study.grid
    note = (
        "an effect of a setting is the mean over every value of the other one; made repeat by repeat, over the repeats that every cell "
        "has; verdicts as below, with a control over all of these by itself"
    )
    rows: list[tuple[str, str]] = []
    if found is not None:
        titles = {metric.name: metric.title for metric in study.metrics}
        rows = [(titles[one.metric], one.words) for one in (*found.effects, *found.interactions)]
        rows += [("left out", found.gap)] if found.gap else []
    name = " and ".join(found.settings) if found else ""
    columns = (Column("by"), Column("answer", wide=True))
    return Table("grid", f"What {name} are worth, and whether they interact", note, columns, tuple(rows))
