"""The tables of a report as plain text in rows and columns, once for every format. How a table is drawn is each format's own business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.records.findings import CellFinding, Metric
from paceline.records.record import Record
from paceline.records.study import StudyRecord
from paceline.report.grid import grid
from paceline.report.payback import graphs, payback
from paceline.report.table import Column, Table
from paceline.report.words import numbers as show
from paceline.report.words.notes import changed_in_words
from paceline.report.words.spoken import SpokenStudy

OURS = "ours"
_TRAINING = (
    "data",
    "compute",
    "waiting",
    "transfer",
    "evaluation",
    "logging",
    "other",
)  # the groups of the training time


def _title(study: SpokenStudy, metric: str) -> str:
    known = study.metric(metric)
    return known.title if known else metric


def _shown(study: SpokenStudy) -> list[Metric]:
    """The metrics of the main table: the main ones, and any that a report has figures for."""
    quoted = {name for cell in study.cells for name in cell.reference}
    return [metric for metric in study.metrics if metric.main or metric.name in quoted]


def _count(cell: CellFinding) -> str:
    return str(cell.n) if cell.n == cell.planned else f"{cell.n} of {cell.planned}"


def cells(study: SpokenStudy) -> Table:
    """Every cell, its runs and main figures; a report's figures stand beside ours."""
    shown = _shown(study)
    quoted = {name for cell in study.cells for name in cell.reference}
    columns = [Column("setting"), Column("n", "right"), Column("outcome")]
    for metric in shown:
        columns.append(Column(f"{metric.title}, samples/s" if metric.unit == "samples/s" else metric.title, "right"))
        if metric.name in quoted:
            columns.append(Column(f"{metric.title}, report", "right"))
    rows: list[tuple[str, ...]] = []
    for cell in study.cells:
        row = [_baseline_mark(cell.label, study), _count(cell), cell.outcome]
        for metric in shown:
            unit = (
                "" if metric.unit == "samples/s" else metric.unit
            )  # long, and the same in every row: it is in the title
            row.append(show.interval(cell.metrics.get(metric.name), unit))
            if metric.name in quoted:
                value = cell.reference.get(metric.name)
                row.append(show.NONE if value is None else show.as_printed(value, metric.unit))
        rows.append(tuple(row))
    note = "mean ± standard deviation [95 % interval]; n is the number of completed runs"
    return Table("cells", "Cells", note, tuple(columns), tuple(rows))


def _baseline_mark(label: str, study: SpokenStudy) -> str:
    return f"{label} (baseline)" if label == study.baseline and len(study.cells) > 1 else label


def figures(study: SpokenStudy) -> Table:
    """Every metric of every cell, one row each."""
    rows = tuple(
        (cell.label, metric.title, str(figure.n), show.interval(figure, metric.unit))
        for metric in study.metrics
        for cell in study.cells
        if (figure := cell.metrics.get(metric.name)) is not None
    )
    columns = (
        Column("setting"),
        Column("metric"),
        Column("n", "right"),
        Column("mean ± s.d. [95 % interval]", "right"),
    )
    return Table("figures", "All figures", "", columns, rows)


def abridged(study: SpokenStudy) -> SpokenStudy:
    """The same findings with the comparisons a small screen has room for: main metrics, and whatever shows a difference."""
    main = {metric.name for metric in study.metrics if metric.main}
    silent = ("no difference shown", "too few runs")
    return replace(
        study, comparisons=tuple(c for c in study.comparisons if c.metric in main or c.verdict not in silent)
    )


def comparisons(study: SpokenStudy) -> Table:
    rows = tuple(
        (
            _title(study, c.metric),
            c.candidate,
            c.baseline,
            show.effect(c, study.metric(c.metric)),
            str(c.n),
            show.probability(c.p),
            c.verdict,
            c.why if c.verdict in ("no difference shown", "too few runs") else "",
        )
        for c in study.comparisons
    )
    columns = (
        Column("metric"), Column("setting"), Column("against"), Column("ratio or difference [95 % interval]", "right"),
        Column("n", "right"), Column("p, adjusted", "right"), Column("verdict"), Column("why"),
    )  # fmt: skip
    note = "a ratio is setting / against: a time of 0.50x is half the time"
    return Table("comparisons", "Comparisons", note, columns, rows)


def scaling(study: SpokenStudy) -> Table:
    rows = tuple(
        (
            row.label,
            str(row.world_size),
            row.kind if row.label != row.baseline else "baseline",
            row.baseline,
            show.times(row.speedup, row.low, row.high),
            show.percent(row.efficiency),
            str(row.n),
        )
        for row in study.scaling
    )
    columns = (
        Column("setting"), Column("processes", "right"), Column("scaling"), Column("against"),
        Column("speed-up [95 % interval]", "right"), Column("efficiency", "right"), Column("n", "right"),
    )  # fmt: skip
    return Table("scaling", "Scaling", "efficiency is speed-up divided by the growth in processes", columns, rows)


def _why_not(study: SpokenStudy) -> str:
    """The question as the study puts it."""
    asked = sorted({row.ideal for row in study.missing if row.ideal > 1})
    if not asked:
        return "Why not as fast as the baseline?"
    if asked == [2]:
        return "Why not twice as fast?"
    times = " or ".join(f"{ideal:g}" for ideal in asked) if len(asked) <= 3 else f"up to {asked[-1]:g}"
    return f"Why not {times} times as fast?"


def missing(study: SpokenStudy) -> Table:
    """One answer for each topology."""
    note = (
        "missing is the share of a setting's training time that an ideal one, with the baseline's time divided by the growth in "
        "processes, would not need; a sample at a time, evaluation and logging included, mean over ranks, with 95 % intervals"
    )
    rows = tuple((row.label, row.words) for row in study.missing)
    return Table("missing", _why_not(study), note, (Column("setting"), Column("answer", wide=True)), rows)


def missing_parts(study: SpokenStudy) -> Table:
    names = list(dict.fromkeys(name for row in study.missing for name in row.parts))
    shown = [n for n in names if any(n in row.parts and abs(row.parts[n].mean) >= 0.0005 for row in study.missing)]
    rows = tuple(
        (
            row.label,
            show.times(row.speedup),
            show.times(row.ideal),
            show.share(row.missing),
            *(show.share(row.parts.get(name)) for name in shown),
        )
        for row in study.missing
    )
    titles = ("speed-up", "ideal", "missing", *("unexplained" if name == "other" else name for name in shown))
    columns = (Column("setting"), *(Column(title, "right") for title in titles))
    note = (
        "shares of the setting's training time; they add up to what is missing, and below zero something was won back"
    )
    return Table("missing-parts", "The missing time by part", note, columns, rows)


def training(study: SpokenStudy) -> Table:
    """Where each cell's training time goes, and what holds it back."""
    told = [cell for cell in study.cells if cell.training_shares]
    shown = [name for name in _TRAINING if any(abs(cell.training_shares.get(name, 0.0)) >= 0.005 for cell in told)]
    hides = any(cell.hidden_s for cell in told)
    rows = tuple(
        (
            cell.label,
            *(show.percent(cell.training_shares.get(name)) for name in shown),
            *((show.number(cell.hidden_s, "s"),) if hides else ()),
            show.unexplained(cell.unexplained),
            f"{cell.bound} ({show.share(cell.bound_share, 0)})" if cell.bound else show.NONE,
        )
        for cell in told
    )
    hidden = (Column("hidden", "right"),) if hides else ()
    columns = (
        Column("setting"), *(Column("eval" if name == "evaluation" else name, "right") for name in shown), *hidden,
        Column("unexplained", "right"), Column("held back by"),
    )  # fmt: skip
    note = "shares of the training time, mean over ranks and runs; unexplained: of the wall time; held back by: of the training steps alone"
    note += "; hidden communication ran while ranks computed and is in no share" if hides else ""
    return Table("training", "Where the training time goes", note, columns, rows)


def conclusions(study: SpokenStudy) -> Table:
    """Each claim with whose it is: a reader must not take ours for a report's."""
    rows = tuple((j.report or OURS, j.claim, j.verdict, j.why) for j in study.judged)
    note = f"Source: {study.source}" if study.source else ""
    if study.changed:
        note = ". ".join(filter(None, [changed_in_words(study), note]))
    columns = (Column("of"), Column("claim"), Column("verdict"), Column("our figures"))
    return Table("conclusions", "The report's conclusions", note, columns, rows)


def failures(study: SpokenStudy) -> Table:
    rows = tuple((cell.label, cell.outcome, reason) for cell in study.cells for reason in cell.reasons)
    columns = (Column("setting"), Column("outcome"), Column("reason"))
    return Table("failures", "Runs that did not complete", "", columns, rows)


def first_logs(study: SpokenStudy) -> list[tuple[str, str]]:
    """For each reason the log of the first run that ended so; the page links them all."""
    firsts = [(cell.label, failed.logs[0]) for cell in study.cells for failed in cell.failures if failed.logs]
    return [(f"log of {label} repeat {log.repeat + 1}", log.path) for label, log in firsts]


def ranks(runs: Sequence[tuple[str, Record]], *, at_most: int | None = None) -> Table:
    """What each rank saw of its own; never the model's score, which is over all ranks together. `at_most` ranks of a run."""
    named = (record.own_score.name for _, record in runs if record.own_score)
    score = next((name for name in named if name), None)
    unit = "fraction" if score == "accuracy" else ""
    rows: list[tuple[str, ...]] = []
    for label, record in runs:
        for rank in record.ranks[:at_most]:
            scores = (
                (show.number(rank.train.get(score), unit), show.number(rank.test.get(score), unit)) if score else ()
            )
            rows.append((
                label, str(rank.rank), rank.host or show.NONE, show.number(rank.train.get("loss")), *scores,
                str(rank.test.get("num", show.NONE)), show.number(rank.rss_bytes, "bytes"),
            ))  # fmt: skip
    own = (Column(f"own train {score}", "right"), Column(f"own test {score}", "right")) if score else ()
    columns = (
        Column("setting"), Column("rank", "right"), Column("host"), Column("own train loss", "right"), *own,
        Column("test samples scored", "right"), Column("process memory", "right"),
    )  # fmt: skip
    note = "each rank's own share only; the model's score is over all ranks together"
    return Table("ranks", "Each rank's own figures, first run of each cell", note, columns, tuple(rows))


def without_first(table: Table, *, title: str) -> Table:
    """The same table about one thing only: its first column would say the same in every row."""
    return replace(table, title=title, columns=table.columns[1:], rows=tuple(row[1:] for row in table.rows))


def study_ranks(study: StudyRecord, *, at_most: int) -> Table:
    """The ranks of the first completed run of each cell; `at_most` of a cell, for a page has its limits."""
    firsts = [(cell.plan.label, cell.completed[0][1]) for cell in study.cells if cell.completed]
    return ranks(firsts, at_most=at_most)


def provenance(study: SpokenStudy) -> tuple[tuple[str, str], ...]:
    rows = (("Task", study.task), ("Hardware", study.hardware), ("Versions", study.versions), ("Source", study.code))
    return tuple((name, value) for name, value in (*rows, ("Method", study.method)) if value)


def all_tables(study: SpokenStudy) -> list[Table]:
    """What every format prints, in order; empty ones are left out."""
    made = [
        cells(study), conclusions(study), grid(study), payback(study), graphs(study), comparisons(study), scaling(study), missing(study),
        missing_parts(study), training(study), failures(study),
    ]  # fmt: skip
    return [table for table in made if table.rows]
