"""The two tables about graphs: when each is paid back, in words; and what it took, how quick its steps are, what broke."""

from __future__ import annotations

from paceline.records.findings import Interval, Payback
from paceline.report.table import Column, Table
from paceline.report.words import numbers as show
from paceline.report.words.figures import steps_in_words
from paceline.report.words.spoken import SpokenStudy


def payback(study: SpokenStudy) -> Table:
    note = (
        "a graph is paid back after compile seconds / (eager step - graph step) steps; steps in the steady state, compiling apart, "
        "with 95 % intervals"
    )
    rows = tuple((row.label, row.words) for row in study.payback)
    return Table(
        "payback",
        "After how many steps is a graph paid back?",
        note,
        (Column("setting"), Column("answer", wide=True)),
        rows,
    )


def graphs(study: SpokenStudy) -> Table:
    rows = tuple(_row(row) for row in study.payback)
    titles = (
        "compile",
        "step",
        "eager step",
        "paid back after, steps",
        "graphs",
        "breaks",
        "recompiled",
        "eager steps",
    )
    columns = (Column("setting"), *(Column(title, "right") for title in titles))
    note = "counts are means over runs; eager steps: made without the graph, because it was not made yet or has another shape"
    return Table("graphs", "Graphs", note, columns, rows)


def _row(row: Payback) -> tuple[str, ...]:
    counts = (f"{row.counts[name]:g}" for name in ("graphs", "breaks", "recompiles", "eager_steps"))
    figures = (_figure(figure) for figure in (row.compile_s, row.step_s, row.eager_step_s))
    after = row.verdict if row.verdict != "paid back" or row.steps is None else steps_in_words(row.steps)
    return (row.label, *figures, after, *counts)


def _figure(figure: Interval) -> str:
    return show.number(figure.mean, "s")
