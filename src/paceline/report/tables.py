"""The tables of a report as plain text in rows and columns, once for every format. How a table is drawn is each format's own business."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paceline.records.findings import CellFinding, Interval, Metric, StudyFindings
from paceline.records.record import Record
from paceline.records.study import StudyRecord
from paceline.report import format as show
from paceline.report.payback import graphs, payback
from paceline.report.table import Column, Table

_TRAINING = (
    "data",
    "compute",
    "waiting",
    "transfer",
    "evaluation",
    "logging",
    "other",
)  # the groups of the training time


def _title(found: StudyFindings, metric: str) -> str:
    known = found.metric(metric)
    return known.title if known else metric


def _shown(found: StudyFindings) -> list[Metric]:
    """The metrics of the main table: the main ones, and any that a report has figures for."""
    quoted = {name for cell in found.cells for name in cell.reference}
    return [metric for metric in found.metrics if metric.main or metric.name in quoted]


def _count(cell: CellFinding) -> str:
    return str(cell.n) if cell.n == cell.planned else f"{cell.n} of {cell.planned}"


def cells(found: StudyFindings) -> Table:
    """Every cell, its runs and main figures; a report's figures stand beside ours."""
    shown = _shown(found)
    quoted = {name for cell in found.cells for name in cell.reference}
    columns = [Column("setting"), Column("n", "right"), Column("outcome")]
    for metric in shown:
        columns.append(Column(f"{metric.title}, samples/s" if metric.unit == "samples/s" else metric.title, "right"))
        if metric.name in quoted:
            columns.append(Column(f"{metric.title}, report", "right"))
    rows: list[tuple[str, ...]] = []
    for cell in found.cells:
        row = [_baseline_mark(cell.label, found), _count(cell), cell.outcome]
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


def _baseline_mark(label: str, found: StudyFindings) -> str:
    return f"{label} (baseline)" if label == found.baseline and len(found.cells) > 1 else label


def figures(found: StudyFindings) -> Table:
    """Every metric of every cell, one row each."""
    rows = tuple(
        (cell.label, metric.title, str(figure.n), show.interval(figure, metric.unit))
        for metric in found.metrics
        for cell in found.cells
        if (figure := cell.metrics.get(metric.name)) is not None
    )
    columns = (
        Column("setting"),
        Column("metric"),
        Column("n", "right"),
        Column("mean ± s.d. [95 % interval]", "right"),
    )
    return Table("figures", "All figures", "", columns, rows)


def told(found: StudyFindings) -> StudyFindings:
    """The same findings with the comparisons a small screen has room for: main metrics, and whatever shows a difference."""
    main = {metric.name for metric in found.metrics if metric.main}
    silent = ("no difference shown", "too few runs")
    return replace(
        found, comparisons=tuple(c for c in found.comparisons if c.metric in main or c.verdict not in silent)
    )


def comparisons(found: StudyFindings) -> Table:
    rows = tuple(
        (
            _title(found, c.metric),
            c.candidate,
            c.baseline,
            show.effect(c, found.metric(c.metric)),
            str(c.n),
            show.probability(c.p),
            c.verdict,
            c.why if c.verdict in ("no difference shown", "too few runs") else "",
        )
        for c in found.comparisons
    )
    columns = (
        Column("metric"), Column("setting"), Column("against"), Column("ratio or difference [95 % interval]", "right"),
        Column("n", "right"), Column("p, adjusted", "right"), Column("verdict"), Column("why"),
    )  # fmt: skip
    note = "a ratio is setting / against: a time of 0.50x is half the time"
    return Table("comparisons", "Comparisons", note, columns, rows)


def scaling(found: StudyFindings) -> Table:
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
        for row in found.scaling
    )
    columns = (
        Column("setting"), Column("processes", "right"), Column("scaling"), Column("against"),
        Column("speed-up [95 % interval]", "right"), Column("efficiency", "right"), Column("n", "right"),
    )  # fmt: skip
    return Table("scaling", "Scaling", "efficiency is speed-up divided by the growth in processes", columns, rows)


def _why_not(found: StudyFindings) -> str:
    """The question as the study puts it."""
    asked = sorted({row.ideal for row in found.missing if row.ideal > 1})
    if not asked:
        return "Why not as fast as the baseline?"
    if asked == [2]:
        return "Why not twice as fast?"
    times = " or ".join(f"{ideal:g}" for ideal in asked) if len(asked) <= 3 else f"up to {asked[-1]:g}"
    return f"Why not {times} times as fast?"


def missing(found: StudyFindings) -> Table:
    """One answer for each topology."""
    note = (
        "missing is the share of a setting's training time that an ideal one, with the baseline's time divided by the growth in "
        "processes, would not need; a sample at a time, evaluation and logging included, mean over ranks, with 95 % intervals"
    )
    rows = tuple((row.label, row.words) for row in found.missing)
    return Table("missing", _why_not(found), note, (Column("setting"), Column("answer", wide=True)), rows)


def missing_parts(found: StudyFindings) -> Table:
    names = list(dict.fromkeys(name for row in found.missing for name in row.parts))
    shown = [n for n in names if any(n in row.parts and abs(row.parts[n].mean) >= 0.0005 for row in found.missing)]
    rows = tuple(
        (
            row.label,
            show.times(row.speedup),
            show.times(row.ideal),
            _share(row.missing),
            *(_share(row.parts.get(name)) for name in shown),
        )
        for row in found.missing
    )
    titles = ("speed-up", "ideal", "missing", *("unexplained" if name == "other" else name for name in shown))
    columns = (Column("setting"), *(Column(title, "right") for title in titles))
    note = (
        "shares of the setting's training time; they add up to what is missing, and below zero something was won back"
    )
    return Table("missing-parts", "The missing time by part", note, columns, rows)


def _share(figure: Interval | None, places: int = 1) -> str:
    if figure is None:
        return show.NONE
    told = (figure.mean, figure.low, figure.high)
    # Adding 0.0 to a rounded value leaves no "-0.0".
    mean, low, high = (None if v is None else f"{round(v * 100, places) + 0.0:.{places}f}" for v in told)
    return f"{mean} %" + (f" [{low}, {high}]" if low is not None and high is not None else "")


def training(found: StudyFindings) -> Table:
    """Where each cell's training time goes, and what holds it back."""
    told = [cell for cell in found.cells if cell.training_shares]
    shown = [name for name in _TRAINING if any(abs(cell.training_shares.get(name, 0.0)) >= 0.005 for cell in told)]
    hides = any(cell.hidden_s for cell in told)
    rows = tuple(
        (
            cell.label,
            *(show.percent(cell.training_shares.get(name)) for name in shown),
            *((show.number(cell.hidden_s, "s"),) if hides else ()),
            show.NONE if cell.unexplained is None else f"{round(cell.unexplained * 100, 2) + 0.0:.2f} %",
            f"{cell.bound} ({_share(cell.bound_share, 0)})" if cell.bound else show.NONE,
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


def conclusions(found: StudyFindings) -> Table:
    rows = tuple((j.claim, j.verdict, j.why) for j in found.judged)
    note = f"Source: {found.source}" if found.source else ""
    columns = (Column("the report says"), Column("verdict"), Column("our figures"))
    return Table("conclusions", "The report's conclusions", note, columns, rows)


def failures(found: StudyFindings) -> Table:
    rows = tuple((cell.label, cell.outcome, reason) for cell in found.cells for reason in cell.reasons)
    columns = (Column("setting"), Column("outcome"), Column("reason"))
    return Table("failures", "Runs that did not complete", "", columns, rows)


def _dict(value: Any) -> dict[str, Any]:
    return value or {}


def ranks(runs: Sequence[tuple[str, Record]]) -> Table:
    """What each rank saw of its own; never the model's score, which is over all ranks together."""
    score = next((r["score"]["name"] for _, r in runs if r.plain.get("score") and r["score"].get("name")), None)
    unit = "fraction" if score == "accuracy" else ""
    rows: list[tuple[str, ...]] = []
    for label, record in runs:
        told: list[dict[str, Any]] = record.plain.get("ranks") or []
        for rank in told:
            train, test = (_dict(rank.get(name)) for name in ("train", "test"))
            scores = (show.number(train.get(score), unit), show.number(test.get(score), unit)) if score else ()
            rows.append((
                label, str(rank["rank"]), str(rank.get("host") or show.NONE), show.number(train.get("loss")), *scores,
                str(test.get("num", show.NONE)), show.number(rank.get("rss_bytes"), "bytes"),
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
    return ranks([(label, Record({**run.plain, "ranks": run["ranks"][:at_most]})) for label, run in firsts])


def provenance(found: StudyFindings) -> tuple[tuple[str, str], ...]:
    rows = (("Task", found.task), ("Hardware", found.hardware), ("Versions", found.versions), ("Source", found.code))
    return tuple((name, value) for name, value in (*rows, ("Method", found.method)) if value)


def all_tables(found: StudyFindings) -> list[Table]:
    """What every format prints, in order; empty ones are left out."""
    made = [
        cells(found), conclusions(found), payback(found), graphs(found), comparisons(found), scaling(found), missing(found),
        missing_parts(found), training(found), failures(found),
    ]  # fmt: skip
    return [table for table in made if table.rows]
